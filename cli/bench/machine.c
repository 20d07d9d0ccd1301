/*
 * machine.c - what the operating system says about this machine; see machine.h.
 *
 * Everything is read from files that may be missing or odd (containers, other kernels):
 * whatever cannot be read stays zero or "unknown", nothing here can fail.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/machine.h"

/* ---- small files ---- */

/* The first bytes of a file as text; 0 if there is none. */
static int slurp(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, size - 1, file);
    fclose(file);
    text[n] = 0;
    return n > 0;
}

/* The rest of the line after "key", blanks and a colon; "" if there is no such line. */
static void value_of(const char *path, const char *key, char *value, size_t size)
{
    char line[512];
    FILE *file = fopen(path, "r");
    size_t length = strlen(key);
    value[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length)) continue;
        const char *at = line + length + strspn(line + length, " \t:");
        snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
        break;
    }
    if (file) fclose(file);
}

static int64_t number_in(const char *path)
{
    char text[64];
    if (!slurp(path, text, sizeof text)) return 0;
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text) return 0;
    return value * (*end == 'K' ? 1024 : *end == 'M' ? 1024 * 1024 : 1);
}

/* ---- processor ---- */

static void look_cpu(machine_facts *facts)
{
    static const char *const keys[] = {"model name", "Model", "Hardware", "uarch", NULL};
    for (int i = 0; keys[i] && !facts->cpu[0]; i++)
        value_of("/proc/cpuinfo", keys[i], facts->cpu, sizeof facts->cpu);
    if (!facts->cpu[0]) snprintf(facts->cpu, sizeof facts->cpu, "unknown");
}

static void look_cores(machine_facts *facts)
{
    cpu_set_t set;
    facts->cores_online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    facts->cores_allowed = facts->cores_online;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        facts->cores_allowed = CPU_COUNT(&set);
}

/* Level 1 data, level 2, and the highest level there is. */
static void look_caches(machine_facts *facts)
{
    char path[96], type[16];
    int highest = 0;
    for (int i = 0; i < 8; i++) {
        const char *base = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof path, "%s%d/type", base, i);
        if (!slurp(path, type, sizeof type) || !strncmp(type, "Instr", 5)) continue;
        snprintf(path, sizeof path, "%s%d/level", base, i);
        int level = (int)number_in(path);
        snprintf(path, sizeof path, "%s%d/size", base, i);
        int64_t size = number_in(path);
        if (level == 1 || level == 2) facts->cache[level - 1] = size;
        if (level >= highest) {
            highest = level;
            facts->cache[2] = size;
        }
    }
}

/* ---- control groups ---- */

/* The path of this process in the hierarchy that has `controller` ("" for version 2). */
static int group_path(const char *controller, char *path, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/self/cgroup", "r");
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
        if (!at) continue;
        *at = 0;
        if (strcmp(names + 1, controller)) continue;
        snprintf(path, size, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
        found = 1;
    }
    if (file) fclose(file);
    return found;
}

/* Cores that version 2's "quota period" or version 1's two files grant; 0: no limit. */
static double quota_of(const char *directory, int version)
{
    char path[700], text[64];
    double quota = 0, period = 0;
    if (version == 2) {
        snprintf(path, sizeof path, "%s/cpu.max", directory);
        if (!slurp(path, text, sizeof text)) return 0;
        if (sscanf(text, "%lf %lf", &quota, &period) != 2) return 0;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
        quota = (double)number_in(path);
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
        period = (double)number_in(path);
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

static int64_t memory_of(const char *directory, int version)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", directory,
             version == 2 ? "memory.max" : "memory.limit_in_bytes");
    int64_t limit = number_in(path);
    return limit < (INT64_C(1) << 60) ? limit : 0; /* a huge number means none */
}

/* The limits of a group and of all groups above it; the smallest counts. */
static void look_group(machine_facts *facts, const char *root, const char *path,
                       int version)
{
    char directory[640];
    size_t start = (size_t)snprintf(directory, sizeof directory, "%s", root);
    snprintf(directory + start, sizeof directory - start, "%s", path);
    for (;;) {
        double quota = quota_of(directory, version);
        int64_t memory = memory_of(directory, version);
        if (quota > 0 && (!facts->cores_quota || quota < facts->cores_quota))
            facts->cores_quota = quota;
        if (memory > 0 && (!facts->memory_limit || memory < facts->memory_limit))
            facts->memory_limit = memory;
        char *slash = strrchr(directory + start, '/');
        if (!slash) break;
        *slash = 0;
    }
}

static void look_groups(machine_facts *facts)
{
    static const struct {
        const char *controller, *root;
        int version;
    } places[] = {{"", "/sys/fs/cgroup", 2},
                  {"cpu", "/sys/fs/cgroup/cpu", 1},
                  {"cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct", 1},
                  {"memory", "/sys/fs/cgroup/memory", 1}};
    char path[512];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (group_path(places[i].controller, path, sizeof path))
            look_group(facts, places[i].root, path, places[i].version);
}

/* ---- memory and accelerators ---- */

static void look_memory(machine_facts *facts)
{
    char text[64];
    value_of("/proc/meminfo", "MemTotal", text, sizeof text);
    facts->memory_total = strtoll(text, NULL, 10) * 1024;
    value_of("/proc/meminfo", "MemAvailable", text, sizeof text);
    facts->memory_free = strtoll(text, NULL, 10) * 1024;
}

static void look_gpu(machine_facts *facts)
{
    const char *base = "/proc/driver/nvidia/gpus";
    char path[400];
    DIR *directory = opendir(base);
    struct dirent *item;
    while (directory && !facts->gpu[0] && (item = readdir(directory))) {
        if (item->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s/information", base, item->d_name);
        value_of(path, "Model", facts->gpu, sizeof facts->gpu);
    }
    if (directory) closedir(directory);
    if (!facts->gpu[0] && access("/dev/nvidia0", F_OK) == 0)
        snprintf(facts->gpu, sizeof facts->gpu, "NVIDIA (model unknown)");
}

void machine_look(machine_facts *facts)
{
    memset(facts, 0, sizeof *facts);
    look_cpu(facts);
    look_cores(facts);
    look_caches(facts);
    look_memory(facts);
    look_groups(facts);
    look_gpu(facts);
}
