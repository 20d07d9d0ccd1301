/*
 * test_serve.c - the live server from outside: a real one on the loopback, spoken to over
 * sockets. Most of it is a table of requests that must be refused.
 *
 *     test_serve --serve [NAME [maps|model]]
 *     test_serve --serve TEXT checkpoint FOLDER
 *         serves a made-up report until its input ends, for the browser tests, or the
 *         embedded model, or one of a folder; prints the address
 */
#define _GNU_SOURCE /* memmem */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "polyhead_prune.h"
#include "polyhead_scene.h"
#include "report_case.h"
#include "view/request.h"

/* ---- what stands behind the server ---- */

typedef struct stand_in {
    report_case before, after;
    int made, runs;
} stand_in;

static const char *case_name = "demo";

static ph_status run(void *user, const ph_live_request *request, const ph_report **before,
                     const ph_report **after)
{
    stand_in *in = user;
    if (!strcmp(request->text, "refuse")) {
        snprintf(request->error, request->error_size, "the text says so");
        return PH_BAD_VALUE;
    }
    __atomic_add_fetch(&in->runs, 1, __ATOMIC_RELAXED);
    *before = &in->before.report;
    if (request->count) *after = &in->after.report;
    return PH_OK;
}

static ph_status save(void *user, const ph_live_request *request, char *name, size_t size)
{
    (void)user;
    snprintf(name, size, "plan-%d.json", request->count);
    return PH_OK;
}

typedef struct service {
    stand_in in;
    ph_live live;
    ph_serve serve;
    ph_status (*run)(const ph_serve *serve, const ph_io *io); /* serves until stopped */
    atomic_int stop, rounds; /* rounds: how often the server has looked for requests */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t there;
    char address[128], token[40], error[200];
    int port;
    ph_status status;
} service;

static service s;

static void ready(void *user, const char *address)
{
    service *to = user;
    pthread_mutex_lock(&to->lock);
    snprintf(to->address, sizeof to->address, "%s", address);
    sscanf(address, "http://127.0.0.1:%d/#token=%39s", &to->port, to->token);
    pthread_cond_signal(&to->there);
    pthread_mutex_unlock(&to->lock);
}

static int stopped(void *user)
{
    service *to = user;
    to->rounds++;
    return to->stop;
}

static void *serve_all(void *user)
{
    service *to = user;
    ph_io io = {.error = to->error, .error_size = sizeof to->error};
    to->status = to->run(&to->serve, &io);
    return NULL;
}

static ph_status run_callbacks(const ph_serve *serve, const ph_io *io)
{
    return ph_serve_run(&s.live, serve, io);
}

/* How often the model was run; the server has a thread of its own. */
static int runs(void)
{
    return __atomic_load_n(&s.in.runs, __ATOMIC_RELAXED);
}

static void start_with(ph_status (*run_server)(const ph_serve *, const ph_io *))
{
    memset(&s, 0, sizeof s);
    report_case_make(&s.in.before, case_name);
    report_case_make(&s.in.after, strcmp(case_name, "demo") ? case_name : "other");
    s.live = (ph_live){.can = 0xf | PH_LIVE_FROZEN | PH_LIVE_SAVE | PH_LIVE_TEXT,
                       .text = "The animal",
                       .run = run,
                       .save = save,
                       .user = &s.in};
    s.serve = (ph_serve){.stopped = stopped, .ready = ready, .user = &s};
    s.run = run_server;
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.there, NULL);
    pthread_mutex_lock(&s.lock);
    pthread_create(&s.thread, NULL, serve_all, &s);
    while (!s.port) pthread_cond_wait(&s.there, &s.lock);
    pthread_mutex_unlock(&s.lock);
}

static void start(void)
{
    start_with(run_callbacks);
}

static void stop(void)
{
    s.stop = 1;
    pthread_join(s.thread, NULL);
    report_case_free(&s.in.before);
    report_case_free(&s.in.after);
}

/* ---- talking ---- */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "nobody listens");
    return fd;
}

static char reply[1 << 21];
static size_t reply_size;

/* Sends bytes, reads until the server hangs up; returns the status of HTTP, 0: none. */
static int talk(const char *bytes, size_t count)
{
    int fd = dial(), status = 0;
    for (size_t sent = 0; sent < count;) {
        ssize_t now = send(fd, bytes + sent, count - sent, MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += (size_t)now;
    }
    shutdown(fd, SHUT_WR);
    reply_size = 0;
    for (ssize_t got; reply_size < sizeof reply - 1; reply_size += (size_t)got) {
        got = recv(fd, reply + reply_size, sizeof reply - 1 - reply_size, 0);
        if (got <= 0) break;
    }
    reply[reply_size] = 0;
    close(fd);
    sscanf(reply, "HTTP/1.1 %d ", &status);
    return status;
}

/* The text with %P replaced by the port and %T by the token. */
static char *filled(const char *text, size_t *length)
{
    static char out[1 << 17];
    size_t at = 0;
    for (; *text; text++) {
        if (text[0] == '%' && text[1] == 'P')
            at += (size_t)sprintf(out + at, "%d", s.port), text++;
        else if (text[0] == '%' && text[1] == 'T')
            at += (size_t)sprintf(out + at, "%s", s.token), text++;
        else
            out[at++] = *text;
    }
    out[at] = 0;
    *length = at;
    return out;
}

static int ask(const char *text)
{
    size_t length;
    const char *bytes = filled(text, &length);
    return talk(bytes, length);
}

/* A POST that is right but for its body. */
static int post(const char *target, const char *body)
{
    static char text[1 << 17];
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%%P\r\nX-Polyhead-Token: %%T\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             target, strlen(body), body);
    return ask(text);
}

static const char *body_of(void)
{
    const char *end = memmem(reply, reply_size, "\r\n\r\n", 4);
    return end ? end + 4 : "";
}

/* ---- what is granted ---- */

#define HOST "Host: 127.0.0.1:%P\r\n"

static void the_page(void)
{
    static const char *const headers[] = {
        "Content-Security-Policy: default-src 'none'; script-src 'nonce-",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Opener-Policy: same-origin",
        "Cross-Origin-Resource-Policy: same-origin",
        "Cache-Control: no-store",
        "Content-Type: text/html; charset=utf-8"};
    start();
    CHECK(ask("GET / HTTP/1.1\r\n" HOST "\r\n") == 200, "%.200s", reply);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        CHECK(strstr(reply, headers[i]), "no header %s", headers[i]);
    CHECK(!strstr(reply, "Access-Control"), "CORS");
    CHECK(!strstr(reply, s.token), "the token is in the page");
    CHECK(strstr(body_of(), "<!doctype html>") == body_of(), "no page");
    const char *nonce = strstr(reply, "nonce-") + 6;
    char tag[80];
    snprintf(tag, sizeof tag, "<script nonce=\"%.32s\">", nonce);
    CHECK(strstr(body_of(), tag), "no script with the nonce");
    CHECK(ask("HEAD / HTTP/1.1\r\n" HOST "\r\n") == 200 && !*body_of(),
          "HEAD has a body");
    CHECK(ask("GET / HTTP/1.1\r\nHost: localhost:%P\r\n\r\n") == 200, "localhost");
    CHECK(ask("GET / HTTP/1.1\r\nhOST:\t[::1]:%P \r\n\r\n") == 200, "[::1]");
    CHECK(ask("GET /favicon.ico HTTP/1.1\r\n" HOST "\r\n") == 204, "favicon");
    stop();
    CHECK(s.status == PH_OK, "%s", s.error);
}

static void a_run(void)
{
    start();
    CHECK(post("/run", "{\"text\":\"The animal\"}") == 200, "%.300s", reply);
    const unsigned char *body = (const unsigned char *)body_of();
    size_t json = body[0] | (size_t)body[1] << 8 | (size_t)body[2] << 16;
    CHECK(body[4] == '{' && json % 4 == 0 && json < reply_size, "no description");
    CHECK(memmem(body + 4, json, "\"mode\":\"f32\"", 12), "weights are not exact");
    CHECK(!memmem(body + 4, json, "\"title\":\"other\"", 15),
          "two reports without changes");
    CHECK(post("/run", "{\"edits\":[{\"kind\":\"zero\",\"layer\":1,\"head\":2},"
                       "{\"kind\":\"gate\",\"gate\":0.5},{\"kind\":\"mean\"},"
                       "{\"kind\":\"mask\",\"word\":3}],\"frozen\":true}") == 200,
          "%.300s", reply);
    CHECK(memmem(reply, reply_size, "\"title\":\"other\"", 15), "no report with changes");
    CHECK(runs() == 2, "%d runs", runs());
    CHECK(post("/run", "{\"text\":\"refuse\"}") == 422 &&
              strstr(reply, "{\"error\":\"the text says so\"}"),
          "%.300s", reply);
    CHECK(post("/save", "{\"edits\":[{\"kind\":\"zero\"}]}") == 200 &&
              strstr(reply, "{\"name\":\"plan-1.json\"}"),
          "%.300s", reply);
    stop();
}

/* Bodies hold arrays behind their JSON. */
static int body_holds(const char *text)
{
    size_t size = reply_size - (size_t)(body_of() - reply);
    return memmem(body_of(), size, text, strlen(text)) != NULL;
}

static void windows(void)
{
    float got[13 * 13];
    start();
    CHECK(post("/window", "{\"rows\":1,\"cols\":1,\"height\":1,\"width\":1}") == 422,
          "before a run");
    CHECK(post("/run", "{}") == 200, "%.200s", reply);
    CHECK(post("/window", "{\"layer\":2,\"head\":1,\"row0\":3,\"rows\":4,\"col0\":5,"
                          "\"cols\":6,\"height\":4,\"width\":6}") == 200,
          "%.200s", reply);
    memcpy(got, body_of(), sizeof(float) * 24);
    for (int n = 0; n < 24; n++) {
        double true_weight =
            report_case_weight(&s.in.before, 0, 2, 1, 3 + n / 6, 5 + n % 6);
        CHECK(got[n] == (float)true_weight, "%d: %g for %g", n, (double)got[n],
              true_weight);
    }
    CHECK(post("/window", "{\"layer\":2,\"head\":1,\"rows\":13,\"cols\":13,\"height\":2,"
                          "\"width\":1}") == 200,
          "%.200s", reply);
    memcpy(got, body_of(), 2 * sizeof(float));
    double most[2] = {0, 0};
    for (int n = 0; n < 169; n++) {
        double w = report_case_weight(&s.in.before, 0, 2, 1, n / 13, n % 13);
        int line = n / 13 * 2 / 13;
        if (w > most[line]) most[line] = w;
    }
    CHECK(got[0] == (float)most[0] && got[1] == (float)most[1], "pooled %g %g, not %g %g",
          (double)got[0], (double)got[1], most[0], most[1]);
    CHECK(post("/vectors", "{\"layer\":5,\"head\":2}") == 200, "%.200s", reply);
    CHECK(reply_size - (size_t)(body_of() - reply) == 2 * 13 * 32 * 4, "vectors");
    stop();
}

/* ---- what is refused ---- */

typedef struct refusal {
    const char *request;
    int status;
} refusal;

#define JSON_TYPE "Content-Type: application/json\r\n"
#define FILE_TYPE "Content-Type: application/octet-stream\r\n"
#define KEY       "X-Polyhead-Token: %T\r\n"
#define END       "\r\n"
#define BODY      "Content-Length: 2\r\n\r\n{}"
#define GET_ROOT  "GET / HTTP/1.1\r\n"
#define POST_RUN  "POST /run HTTP/1.1\r\n"

static const refusal refusals[] = {
#include "serve_refusals.inc"
};

static void refused_requests(void)
{
    start();
    for (size_t n = 0; n < sizeof refusals / sizeof *refusals; n++) {
        int status = ask(refusals[n].request);
        CHECK(status == refusals[n].status, "request %zu: %d, expected %d: %.300s", n,
              status, refusals[n].status, refusals[n].request);
        CHECK(!strstr(reply, "Access-Control"), "CORS");
    }
    CHECK(runs() == 0, "a refused request ran the model");
    CHECK(ask(GET_ROOT HOST END) == 200, "it does not serve any more");
    stop();
}

/* Bodies that are no good, each for another reason. */
static void refused_bodies(void)
{
    static const struct {
        const char *target, *body, *words;
    } known[] = {
#include "serve_bodies.inc"
    };
    start();
    CHECK(post("/run", "{}") == 200, "%.200s", reply);
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        int status = post(known[n].target, known[n].body);
        CHECK(status == 400 || status == 422, "%s: %d", known[n].body, status);
        CHECK(strstr(body_of(), known[n].words), "%s: %.200s does not say %s",
              known[n].body, body_of(), known[n].words);
    }
    CHECK(runs() == 1, "a refused request ran the model");
    stop();
}

/* One byte that is wrong at each place of a good request; none may be granted a run. */
static void every_byte(void)
{
    static const char bytes[] = {0, '\n', '\r', ' ', '\x7f', '\x80', '\xff', '\x01'};
    size_t length;
    start();
    const char *good =
        filled(POST_RUN HOST "X-Polyhead-Token: %T\r\n" JSON_TYPE BODY, &length);
    char *text = malloc(length);
    size_t head = (size_t)((const char *)memmem(good, length, "\r\n\r\n", 4) - good);
    for (size_t i = 0; i < head; i++)
        for (size_t b = 0; b < sizeof bytes; b++) {
            ph_request request;
            if (good[i] == bytes[b]) continue;
            memcpy(text, good, length);
            text[i] = bytes[b];
            int status = ph_request_read(text, length, &request);
            if (status == PH_REQUEST_READY)
                status = ph_request_allowed(&request, s.port, s.token);
            int harmless = bytes[b] == ' ' || status != PH_REQUEST_READY;
            CHECK(harmless, "byte %zu as %d passes", i, bytes[b]);
        }
    for (size_t i = 0; i <= head + 3; i++) { /* cut anywhere: more is expected */
        ph_request request;
        CHECK(ph_request_read(good, i, &request) == PH_REQUEST_MORE, "cut at %zu", i);
    }
    free(text);
    stop();
}

static void long_requests(void)
{
    char *text = malloc(200000);
    start();
    sprintf(text, "GET /%.*s HTTP/1.1\r\n", 0, "");
    size_t at = (size_t)sprintf(text, "GET /");
    memset(text + at, 'a', 9000);
    strcpy(text + at + 9000, " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    CHECK(talk(text, strlen(text)) == 414, "a long line: %.60s", reply);
    at = (size_t)sprintf(text, GET_ROOT);
    for (int i = 0; i < 400; i++)
        at += (size_t)sprintf(text + at, "X-Header-%d: %0100d\r\n", i, i);
    CHECK(talk(text, at) == 431, "many headers: %.60s", reply);
    at = (size_t)sprintf(text, GET_ROOT "X: ");
    memset(text + at, 'a', 100000);
    CHECK(talk(text, at + 100000) == 431, "a long header: %.60s", reply);
    CHECK(ask(POST_RUN HOST KEY JSON_TYPE "Content-Length: 1048577\r\n\r\n") == 413,
          "body");
    stop();
    free(text);
}

/* More at once than it has places: those beyond wait or are dropped, and it goes on. */
static void many_at_once(void)
{
    int fd[100];
    start();
    for (int i = 0; i < 100; i++) {
        fd[i] = dial();
        if (send(fd[i], "GET / HT", 8, MSG_NOSIGNAL) != 8) break;
    }
    usleep(300000);
    for (int i = 0; i < 100; i++) close(fd[i]);
    usleep(300000);
    CHECK(ask(GET_ROOT HOST END) == 200, "it does not serve any more");
    stop();
    CHECK(s.status == PH_OK, "%s", s.error);
}

/* Clients that never finish their requests do not keep a reader out. */
static void slow_connections(void)
{
    enum { SLOW = 200 };
    int fd[SLOW];
    start();
    for (int i = 0; i < SLOW; i++) {
        fd[i] = dial();
        CHECK(send(fd[i], "GET / HT", 8, MSG_NOSIGNAL) == 8, "connection %d", i);
    }
    for (int i = 0; i < 3; i++)
        CHECK(ask(GET_ROOT HOST END) == 200, "request %d is refused", i);
    for (int i = 0; i < SLOW; i++) close(fd[i]);
    stop();
    CHECK(s.status == PH_OK, "%s", s.error);
}

static void only_loopback(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    socklen_t size = sizeof to;
    start();
    int fd = dial();
    getpeername(fd, (struct sockaddr *)&to, &size);
    close(fd);
    int other = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(0x7f000002); /* 127.0.0.2: also this machine */
    int reached = connect(other, (struct sockaddr *)&to, sizeof to) == 0;
    close(other);
    stop();
    CHECK(!reached, "it listens on more than 127.0.0.1");
}

/* ---- a model and a report, with public headers only ---- */

#include "serve_models.inc"

static int at_once(void *user)
{
    (void)user;
    return 1;
}

#include "serve_files.inc"

static void bad_models(void)
{
    char error[200] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_serve serve = {.stopped = at_once};
    ph_model *model = open_model();
    live.plan = "/no/such/plan";
    CHECK(ph_serve_model(&live, &serve, &io) == PH_IO_ERROR && strstr(error, live.plan),
          "%s", error);
    live.text = "";
    CHECK(ph_serve_model(&live, &serve, &io) && strstr(error, "empty"), "%s", error);
    live.model = NULL;
    CHECK(ph_serve_model(&live, &serve, &io) == PH_BAD_ARGUMENT, "%s", error);
    ph_model_free(model);
    ph_close(live.ctx);
}

static void bad_options(void)
{
    char error[200] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_live callbacks = {.text = "", .run = run};
    ph_serve serve = {.stopped = at_once, .port = 70000};
    CHECK(ph_serve_run(&callbacks, &serve, &io) == PH_BAD_ARGUMENT &&
              strstr(error, "70000"),
          "%s", error);
    serve.port = 0;
    callbacks.run = NULL;
    CHECK(ph_serve_run(&callbacks, &serve, &io) == PH_BAD_ARGUMENT, "%s", error);
    start();
    callbacks.run = run;
    serve.port = s.port;
    ph_status status = ph_serve_run(&callbacks, &serve, &io);
    stop();
    CHECK(status == PH_IO_ERROR && strstr(error, "cannot listen on 127.0.0.1"), "%s",
          error);
}

static const check_case cases[] = {{"the_page", the_page},
                                   {"a_run", a_run},
                                   {"windows", windows},
                                   {"refused_requests", refused_requests},
                                   {"refused_bodies", refused_bodies},
                                   {"every_byte", every_byte},
                                   {"long_requests", long_requests},
                                   {"many_at_once", many_at_once},
                                   {"slow_connections", slow_connections},
                                   {"only_loopback", only_loopback},
                                   {"a_report", a_report},
                                   {"a_model", a_model},
                                   {"the_same_text", the_same_text},
                                   {"a_measurement", a_measurement},
                                   {"a_removal", a_removal},
                                   {"a_picture", a_picture},
                                   {"sound", sound},
                                   {"words", words},
                                   {"no_words", no_words},
                                   {"bad_models", bad_models},
                                   {"bad_options", bad_options},
                                   {0, 0}};

static int serve_until_end(void)
{
    puts(s.address);
    fflush(stdout);
    while (getchar() != EOF) {}
    stop();
    return s.status != PH_OK;
}

/* Data that takes long enough to be cancelled; plans go to a folder that is removed. */
static int serve_embedded(void)
{
    enum { TEXTS = 400 };
    static const char *texts[TEXTS];
    char folder[] = "/tmp/test_serve.XXXXXX", save_as[64], plan[80];
    ph_model *model = open_model();
    for (int i = 0; i < TEXTS; i++) texts[i] = i % 2 ? live.text : SENTENCE_ZH;
    if (!mkdtemp(folder)) return 1;
    snprintf(save_as, sizeof save_as, "%s/plan", folder);
    snprintf(plan, sizeof plan, "%s-1.json", save_as);
    live.text = "The animal didn't cross the street because it was too tired.";
    live.data = &(ph_texts){.texts = texts, .count = TEXTS};
    live.save_as = save_as, live.command = "polyhead prune pronouns --plan";
    start_with(run_model);
    int failed = serve_until_end();
    remove(plan);
    rmdir(folder);
    ph_model_free(model);
    ph_close(live.ctx);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--serve")) return check_main(argc, argv, cases);
    if (argc > 4) {
        ph_model *model = open_golden(argv[4], argv[2]);
        int failed = serve_until_end();
        ph_model_free(model);
        ph_close(live.ctx);
        return failed;
    }
    if (argc > 2) case_name = argv[2];
    if (argc > 3 && !strcmp(argv[3], "model")) return serve_embedded();
    start_with(argc > 3 ? run_report : run_callbacks);
    return serve_until_end();
}
