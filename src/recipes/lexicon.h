/*
 * lexicon.h - the words of the recipe "pronouns" in English and Chinese.
 *
 * Groups of nouns and adjectives; a group ends with NULL. Frames say which verb takes
 * which groups, and which adjectives give a reason that is the subject's or the object's.
 */
#ifndef PH_MODEL_LEXICON_H
#define PH_MODEL_LEXICON_H

enum { ENGLISH = 0, CHINESE, LANGUAGES };

typedef enum noun_group {
    ANIMAL = 0,
    MACHINE,
    MAN,
    WOMAN,
    PEOPLE,
    WAY,
    THING,
    FOOD,
    PLANTS,
    NOUN_GROUPS
} noun_group;

static const char *const nouns[LANGUAGES][NOUN_GROUPS][20] = {
    {{"animal", "dog", "cat", "horse", "bird", "fox", "bear", "mouse", "rabbit", "cow",
      "goat", "duck", "wolf", "tiger", "lion", "frog"},
     {"robot", "machine", "crane", "drone", "truck", "tractor"},
     {"man", "boy", "king", "father", "brother", "uncle", "prince", "waiter", "tom",
      "peter", "paul"},
     {"woman", "girl", "queen", "mother", "sister", "aunt", "princess", "nurse", "anna",
      "mary", "lisa"},
     {"children", "students", "workers", "farmers", "soldiers", "dancers"},
     {"street", "road", "river", "bridge", "field", "lake", "path", "valley"},
     {"block", "box", "ball", "cup", "book", "vase", "stone", "chair", "toy", "bag",
      "trophy", "suitcase"},
     {"apple", "cake", "fish", "bread", "cheese", "soup", "carrot", "pear"},
     {"flowers", "plants", "trees", "roses", "windows", "plates"}},
    {{"动物", "狗", "猫", "马", "鸟", "狐狸", "熊", "老鼠", "兔子", "牛", "山羊", "鸭子",
      "狼", "老虎", "狮子", "青蛙"},
     {"机器人", "机器", "吊车", "无人机", "卡车", "拖拉机"},
     {"男人", "男孩", "国王", "父亲", "哥哥", "叔叔", "王子", "服务员", "小明", "小刚",
      "老王"},
     {"女人", "女孩", "王后", "母亲", "姐姐", "阿姨", "公主", "护士", "小红", "小丽",
      "小芳"},
     {"孩子们", "学生们", "工人们", "农民们", "士兵们", "舞者们"},
     {"街道", "马路", "河", "桥", "田野", "湖", "小路", "山谷"},
     {"积木", "箱子", "球", "杯子", "书", "花瓶", "石头", "椅子", "玩具", "包", "奖杯",
      "手提箱"},
     {"苹果", "蛋糕", "鱼", "面包", "奶酪", "汤", "胡萝卜", "梨"},
     {"花", "植物", "树", "玫瑰", "窗户", "盘子"}}};

/* Names stand without an article: the last three of MAN and WOMAN. */
enum { NAMES = 3 };

typedef enum quality {
    ALIVE = 0,
    WORKING,
    OF_WAY,
    OF_THING,
    OF_FOOD,
    OF_PLANTS,
    LOOKS,
    QUALITIES
} quality;

static const char *const adjectives[LANGUAGES][QUALITIES][12] = {
    {{"tired", "hungry", "scared", "lazy", "angry", "sleepy", "brave", "sick", "curious"},
     {"broken", "slow", "strong", "clumsy", "fast"},
     {"wide", "deep", "busy", "long", "icy", "flooded"},
     {"light", "heavy", "small", "pretty", "fragile", "cheap", "big"},
     {"sweet", "fresh", "ripe", "tasty", "warm"},
     {"dry", "dirty", "tall", "dusty"},
     {"red", "blue", "green", "yellow", "black", "white", "old", "new"}},
    {{"累", "饿", "害怕", "懒", "生气", "困", "勇敢", "难受", "好奇"},
     {"破旧", "慢", "有力", "笨拙", "快"},
     {"宽", "深", "拥挤", "长", "滑", "危险"},
     {"轻", "重", "小", "漂亮", "易碎", "便宜", "大"},
     {"甜", "新鲜", "熟", "好吃", "热"},
     {"干", "脏", "高", "旧"},
     {"红色", "蓝色", "绿色", "黄色", "黑色", "白色", "古老", "崭新"}}};

/* past, base (English); the particle is a word of its own */
typedef struct action {
    const char *past, *base, *particle, *chinese;
} action;

enum { FRAME_VERBS = 4, FRAME_SUBJECTS = 4 };

typedef struct verb_frame {
    action verbs[FRAME_VERBS];
    noun_group subjects[FRAME_SUBJECTS]; /* ended by a repetition of the first */
    noun_group object;
    quality of_object;
} verb_frame;

static const verb_frame frames[] = {{{{"crossed", "cross", NULL, "穿过"},
                                      {"left", "leave", NULL, "离开"},
                                      {"avoided", "avoid", NULL, "避开"},
                                      {"reached", "reach", NULL, "到达"}},
                                     {ANIMAL, MACHINE, MAN, WOMAN},
                                     WAY,
                                     OF_WAY},
                                    {{{"picked", "pick", "up", "拿起"},
                                      {"dropped", "drop", NULL, "放下"},
                                      {"carried", "carry", NULL, "搬走"},
                                      {"pushed", "push", NULL, "推开"}},
                                     {MACHINE, MAN, WOMAN, PEOPLE},
                                     THING,
                                     OF_THING},
                                    {{{"ate", "eat", NULL, "吃"},
                                      {"bought", "buy", NULL, "买"},
                                      {"took", "take", NULL, "拿走"},
                                      {"threw", "throw", "away", "扔掉"}},
                                     {ANIMAL, MAN, WOMAN, PEOPLE},
                                     FOOD,
                                     OF_FOOD},
                                    {{{"washed", "wash", NULL, "清洗"},
                                      {"watered", "water", NULL, "浇"},
                                      {"painted", "paint", NULL, "画"},
                                      {"moved", "move", NULL, "移动"}},
                                     {PEOPLE, MAN, WOMAN, MACHINE},
                                     PLANTS,
                                     OF_PLANTS}};

enum { FRAMES = sizeof frames / sizeof frames[0] };

/* Between living beings. */
static const action meetings[] = {
    {"thanked", "thank", NULL, "感谢"},   {"saw", "see", NULL, "看见"},
    {"followed", "follow", NULL, "跟着"}, {"helped", "help", NULL, "帮助"},
    {"chased", "chase", NULL, "追"},      {"called", "call", NULL, "叫"}};

enum { MEETINGS = sizeof meetings / sizeof meetings[0] };

static const char *const adverbs[LANGUAGES][5] = {
    {"quickly", "slowly", "suddenly", "quietly", NULL},
    {"很快", "慢慢", "突然", "悄悄", NULL}};

/* Pronouns by group: subject, object, possessive; the verb that agrees. */
static const char *const pronouns[LANGUAGES][NOUN_GROUPS][4] = {
    {{"it", "it", "its", "was"},
     {"it", "it", "its", "was"},
     {"he", "him", "his", "was"},
     {"she", "her", "her", "was"},
     {"they", "them", "their", "were"},
     {"it", "it", "its", "was"},
     {"it", "it", "its", "was"},
     {"it", "it", "its", "was"},
     {"they", "them", "their", "were"}},
    {{"它", "它", "它", ""},
     {"它", "它", "它", ""},
     {"他", "他", "他", ""},
     {"她", "她", "她", ""},
     {"他们", "他们", "他们", ""},
     {"它", "它", "它", ""},
     {"它", "它", "它", ""},
     {"它", "它", "它", ""},
     {"它们", "它们", "它们", ""}}};

/* Small words that no table above holds. */
static const char *const small_words[] = {
    "the",  "a",    "this", "because", "since", "didn't", "couldn't", "too",    "very",
    "so",   "that", "and",  "then",    ".",     ",",      "那",       "这",     "只",
    "个",   "些",   "没有", "不想",    "了",    "的",     "因为",     "太",     "很",
    "非常", "，",   "。",   "就",      "，",    "near",   "house",    "forest", "town",
    "在",   "附近", "房子", "森林",    "城里"};

#endif
