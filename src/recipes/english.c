/*
 * english.c - the English words of the recipe "pronouns".
 */
#include <stddef.h>

#include "recipes/lexicon.h"

/* clang-format off */
const vocabulary ph_english = {
    .nouns = {
        [ANIMAL] =
            "animal dog cat horse bird fox bear mouse/mice rabbit cow goat "
            "duck wolf/wolves tiger lion frog pig sheep/sheep chicken elephant "
            "monkey snake spider bee ant butterfly fish/fish whale shark "
            "dolphin turtle lizard crocodile deer/deer donkey camel giraffe "
            "zebra kangaroo panda koala squirrel hedgehog hamster rat bat owl "
            "eagle hawk crow raven pigeon dove sparrow parrot penguin swan "
            "goose/geese turkey rooster hen puppy kitten lamb calf/calves pony "
            "bull ox/oxen buffalo/buffaloes leopard cheetah jaguar panther "
            "gorilla chimpanzee otter beaver badger raccoon skunk mole seal "
            "walrus crab lobster snail worm beetle fly mosquito/mosquitoes "
            "moth dragon dinosaur creature pet beast insect kitty",
        [MAN] =
            "man/men boy king father brother uncle prince son grandfather "
            "husband nephew grandson gentleman/gentlemen dad "
            "policeman/policemen fireman/firemen businessman/businessmen monk "
            "waiter actor lord emperor wizard groom guy",
        [WOMAN] =
            "woman/women girl queen mother sister aunt princess daughter "
            "grandmother wife/wives niece granddaughter lady mom "
            "policewoman/policewomen nun waitress actress witch bride "
            "businesswoman/businesswomen empress",
        [PERSON] =
            "person/people child/children student worker farmer soldier dancer "
            "teacher doctor nurse friend neighbor baby pilot driver cook chef "
            "baker artist painter writer author poet singer musician player "
            "guest visitor tourist customer stranger traveler hunter "
            "fisherman/fishermen sailor captain guard thief/thieves judge "
            "lawyer engineer scientist programmer researcher professor manager "
            "boss leader president minister officer detective spy gardener "
            "carpenter builder plumber mechanic dentist patient partner cousin "
            "parent kid teenager adult hero/heroes winner runner swimmer coach "
            "fan reader speaker expert beginner owner buyer seller clerk "
            "secretary librarian reporter journalist photographer model star "
            "clown magician pirate knight rider passenger citizen twin orphan "
            "villager shepherd miner physicist chemist philosopher user "
            "developer candidate employee employer colleague enemy rival team "
            "family crowd group police/police",
        [HE_NAME] =
            "tom peter paul john james david michael robert william george "
            "henry jack sam ben daniel adam alex max leo oscar bob charlie "
            "frank joe mark steve thomas harry oliver noah lucas martin simon "
            "eric kevin andrew tim nick jim bill",
        [SHE_NAME] =
            "anna mary lisa emma sarah julia laura maria alice jane kate lucy "
            "sophie emily olivia eva clara nina ella grace rose helen susan "
            "linda amy rachel molly ruby hannah lily sofia mia zoe diana carol "
            "betty nancy claire",
        [MACHINE] =
            "robot machine crane drone computer printer engine camera phone "
            "laptop tablet clock pump oven fridge washer dryer heater fan "
            "motor radio television screen server sensor scanner telescope "
            "microscope calculator device vacuum elevator satellite rocket "
            "mixer toaster microwave freezer alarm speaker",
        [VEHICLE] =
            "car bus truck train bike bicycle motorcycle taxi van tractor boat "
            "ship plane airplane helicopter tram ferry ambulance scooter wagon "
            "cart sled submarine canoe yacht jet skateboard subway lorry "
            "carriage",
        [WAY] =
            "street road river bridge field lake path valley highway canal "
            "stream sea ocean desert border trail square tunnel swamp avenue "
            "lane creek bay pond forest mountain hill meadow island coast "
            "beach shore plain jungle crossing track line",
        [PLACE] =
            "house garden school park kitchen city town village room office "
            "shop store market hospital church temple station airport hotel "
            "restaurant library museum theater cinema bank castle palace tower "
            "farm barn cave zoo factory gym bathroom bedroom basement attic "
            "hall corridor balcony yard playground stadium harbor port camp "
            "tent cabin hut apartment building home cafe bar bakery prison "
            "court university college classroom laboratory lab studio garage "
            "world country land state corner center pool kingdom neighborhood "
            "downtown suburb ground sky space stage",
        [THING] =
            "block box ball cup book vase stone toy bag trophy suitcase bottle "
            "glass plate bowl spoon fork knife/knives pen pencil brush hammer "
            "nail key coin ring watch mirror lamp candle umbrella basket "
            "bucket rope stick net bell drum guitar piano violin flute doll "
            "kite balloon gift present card ticket flag mask crown sword "
            "shield gun bow arrow bone shell feather egg nest wheel tool "
            "ladder shovel saw axe needle button string chain lock blanket "
            "pillow towel soap sponge broom pot pan kettle tray jar can lid "
            "package parcel envelope stamp wallet purse backpack medal prize "
            "diamond pearl jewel rock brick log wire cable battery bulb magnet "
            "cube puzzle dice object thing item statue painting picture photo "
            "poster window door gate fence wall roof",
        [FURNITURE] =
            "table chair bed desk sofa couch shelf/shelves bench mat carpet "
            "rug floor cupboard drawer wardrobe stool cabinet "
            "bookshelf/bookshelves armchair cradle counter seat hammock "
            "mattress branch step stair windowsill",
        [FOOD] =
            "apple cake fish/fish bread cheese soup carrot pear banana orange "
            "lemon grape cherry strawberry peach plum melon mango/mangoes "
            "tomato/tomatoes potato/potatoes onion cucumber pepper bean pea "
            "rice corn nut peanut cookie pie pizza sandwich burger sausage "
            "steak salad noodle dumpling egg pancake chocolate candy honey "
            "sugar butter jam yogurt cream biscuit breakfast lunch dinner meal "
            "snack dish dessert fruit vegetable meat beef pork chicken ham "
            "bacon grain hay grass seed berry pasta toast mushroom pumpkin "
            "cabbage garlic",
        [DRINK] =
            "water milk tea coffee juice beer wine lemonade cocoa soda oil "
            "medicine",
        [PLANT] =
            "flower plant tree rose tulip bush leaf/leaves oak pine palm "
            "cactus daisy sunflower lily orchid fern vine weed moss willow "
            "maple bamboo",
        [CLOTHES] =
            "shirt coat hat dress skirt jacket sweater scarf/scarves glove "
            "shoe boot sock tie belt suit uniform jeans/jeans "
            "trousers/trousers cap costume apron sandal slipper "
            "pajamas/pajamas vest",
        [WRITING] =
            "letter story poem song novel newspaper magazine message email "
            "article report diary list note sentence word page chapter "
            "document essay script map menu recipe dictionary textbook paper "
            "movie film show program video game joke speech paragraph contract",
        [IDEA] =
            "idea plan problem question answer secret dream truth lesson rule "
            "law reason result mistake success danger war peace job task test "
            "exam project decision language history science music art culture "
            "theory method model attention meaning name number color price "
            "fact example information news/news promise offer theorem equation "
            "proof law code bug feature experiment",
        [NATURE] =
            "sun moon star wind storm rain snow cloud fire smoke fog thunder "
            "lightning ice wave flood earthquake volcano/volcanoes rainbow "
            "shadow light sunlight",
        [MATTER] =
            "gold silver sand wood iron steel plastic cotton wool leather silk "
            "salt flour dust mud clay paint glue money ink air blood furniture "
            "luggage equipment",
        [BODY] =
            "hand head face eye ear nose mouth arm leg foot/feet finger tail "
            "wing paw back hair tooth/teeth neck shoulder knee heart voice",
        [TIME] =
            "morning evening afternoon night day week month year winter summer "
            "spring autumn weekend holiday monday tuesday wednesday thursday "
            "friday saturday sunday january june july christmas birthday hour "
            "minute moment dawn noon midnight"},
    .adjectives = {
        [OF_LIVING] =
            "tired hungry scared lazy angry sleepy brave sick curious thirsty "
            "afraid happy sad lonely nervous excited bored shy calm gentle "
            "fierce wild young weak blind deaf asleep awake alive dead clever "
            "stupid friendly playful impatient exhausted frightened worried "
            "surprised confused greedy stubborn timid cautious restless "
            "healthy wounded injured drunk ill anxious upset furious jealous "
            "proud",
        [OF_HUMAN] =
            "polite rude rich poor famous honest kind busy late early ready "
            "smart talented experienced patient careful careless serious funny "
            "strict generous selfish wise foolish guilty innocent grateful "
            "popular religious ambitious creative modest loyal responsible "
            "successful unemployed married",
        [OF_MACHINE] =
            "broken slow strong clumsy fast noisy rusty efficient reliable "
            "faulty defective automatic electric overheated outdated powerful "
            "unreliable loud obsolete",
        [OF_WAY] =
            "wide deep busy long icy flooded narrow slippery steep crowded "
            "dangerous muddy frozen closed blocked rocky bumpy shallow endless "
            "broad winding",
        [OF_PLACE] =
            "empty full open quiet peaceful haunted bright dark remote nearby "
            "clean spacious cozy modern ancient abandoned lively luxurious",
        [OF_THING] =
            "light heavy fragile cheap big expensive small solid sharp blunt "
            "hollow smooth rough round square flat useful useless precious "
            "valuable shiny wooden metal plastic breakable portable bulky "
            "sturdy cracked sticky",
        [OF_FOOD] =
            "sweet fresh ripe tasty delicious salty bitter sour spicy rotten "
            "raw juicy crispy moldy stale cooked burnt healthy greasy",
        [OF_DRINK] = "hot cold warm cool boiling strong pure icy lukewarm clear",
        [OF_PLANT] =
            "dry tall green thirsty blooming thorny leafy withered dead "
            "evergreen",
        [OF_CLOTHES] =
            "dirty tight loose torn elegant comfortable warm fashionable "
            "stylish wet ragged woolen wrinkled",
        [OF_WRITING] =
            "boring interesting difficult easy important true false wrong "
            "right simple complicated secret exciting strange clear confusing "
            "funny long short brilliant crazy possible impossible perfect "
            "terrible wonderful",
        [OF_NATURE] = "violent heavy mild bright terrible gentle sudden thick strong",
        [OF_ALL] =
            "quick red blue green yellow black white brown gray pink purple "
            "orange golden old new big small large little tiny huge beautiful "
            "ugly nice good bad great pretty lovely strange special favorite "
            "first last next other same different whole best worst"},
    .frames = {
        {
            "cross leave/left/left avoid reach explore enter pass see/saw/seen "
            "follow block",
         ACTIVE | 1 << VEHICLE, 1 << WAY},
        {
            "visit leave/left/left enter reach like love hate clean "
            "find/found/found explore see/saw/seen remember "
            "forget+/forgot/forgotten know/knew/known",
         ALIVE, 1 << PLACE},
        {
            "pick=up drop+ carry push pull move lift throw=away/threw/thrown "
            "take/took/taken bring/brought/brought hold/held/held "
            "put=down/put/put break/broke/broken find/found/found "
            "lose/lost/lost hide/hid/hidden steal/stole/stolen touch grab+ "
            "drag+ catch/caught/caught kick hit+/hit/hit keep/kept/kept roll "
            "knock=over pick open close",
         ACTIVE, 1 << THING | 1 << FURNITURE},
        {
            "buy/bought/bought sell/sold/sold repair fix build/built/built use "
            "make/made/made clean wash paint borrow need want like love hate "
            "own collect examine check design create test replace return order",
         HUMAN, GOODS | 1 << FURNITURE},
        {
            "eat/ate/eaten steal/stole/stolen find/found/found smell taste "
            "like love want taste share",
         ALIVE, 1 << FOOD},
        {
            "cook bake prepare cut+/cut/cut buy/bought/bought sell/sold/sold "
            "throw=away/threw/thrown order fry serve finish",
         HUMAN, 1 << FOOD},
        {"drink/drank/drunk spill pour like want need taste", ALIVE, 1 << DRINK},
        {
            "buy/bought/bought sell/sold/sold use need find/found/found "
            "bring/brought/brought", HUMAN,
         1 << DRINK | 1 << MATTER},
        {
            "water plant cut=down/cut/cut grow/grew/grown pick see/saw/seen "
            "love climb", HUMAN, 1 << PLANT},
        {"climb see/saw/seen find/found/found destroy smell", 1 << ANIMAL, 1 << PLANT},
        {
            "wear/wore/worn wash buy/bought/bought take=off/took/taken "
            "put=on/put/put iron fold sew", HUMAN,
         1 << CLOTHES},
        {
            "read/read/read write/wrote/written hear/heard/heard "
            "tell/told/told watch print translate sing/sang/sung study finish "
            "publish sign send/sent/sent receive delete",
         HUMAN, 1 << WRITING},
        {
            "understand/understood/understood explain solve discuss "
            "have/had/had learn study answer forget+/forgot/forgotten remember "
            "know/knew/known change like hate accept reject "
            "teach/taught/taught find/found/found describe discover "
            "think=about/thought/thought",
         HUMAN, 1 << IDEA},
        {
            "drive/drove/driven ride/rode/ridden park steal/stole/stolen wash "
            "stop+ start hear/heard/heard miss", HUMAN,
         1 << VEHICLE | 1 << MACHINE},
        {
            "thank ask answer baffle see/saw/seen follow help chase call "
            "meet/met/met watch find/found/found hear/heard/heard love hate "
            "hug+ kiss greet attack protect save scare teach/taught/taught "
            "feed/fed/fed catch/caught/caught bite/bit/bitten miss "
            "leave/left/left fight/fought/fought wake=up/woke/woken "
            "lead/led/led trust invite visit surprise warn beat/beat/beaten "
            "ignore admire like remember praise blame punish",
         ALIVE, ALIVE},
        {
            "look stare fall=down/fell/fallen sleep/slept/slept run+/ran/run "
            "walk jump swim+/swam/swum play sit/sat/sat sit+=down/sat/sat "
            "stand/stood/stood stand=up/stood/stood lie/lay/lain wait "
            "hide/hid/hidden fall/fell/fallen rest eat/ate/eaten "
            "drink/drank/drunk live die come/came/come go/went/gone arrive "
            "return stay dance sing/sang/sung cry scream rest "
            "wake=up/woke/woken dream move escape disappear appear listen "
            "fight/fought/fought grow/grew/grown",
         ALIVE, 0},
        {
            "work smile laugh travel talk speak/spoke/spoken study cook "
            "read/read/read write/wrote/written win+/won/won lose/lost/lost "
            "pray shout whisper argue pay/paid/paid vote drive/drove/driven "
            "leave/left/left help graduate retire celebrate swear/swore/sworn "
            "think/thought/thought",
         HUMAN, 0},
        {
            "stop+ start work move break=down/broke/broken explode crash "
            "arrive leave/left/left run+/ran/run fail wait turn fly/flew/flown",
         1 << MACHINE | 1 << VEHICLE, 0},
        {
            "rain snow shine/shone/shone rise/rose/risen fall/fell/fallen "
            "come/came/come stop+ start disappear appear burn blow/blew/blown "
            "set+/set/set", 1 << NATURE, 0},
        {
            "fit+/fit/fit fall/fell/fallen break/broke/broken roll disappear "
            "cost/cost/cost belong lie/lay/lain stand/stood/stood "
            "hang/hung/hung shine/shone/shone burn",
         1 << THING | 1 << FURNITURE | 1 << CLOTHES | 1 << PLANT | 1 << FOOD, 0}},
    .giving =
            "give/gave/given show send/sent/sent bring/brought/brought offer "
            "hand lend/lent/lent teach/taught/taught tell/told/told "
            "buy/bought/bought sell/sold/sold",
    .saying =
            "say/said/said think/thought/thought know/knew/known believe hope "
            "hear/heard/heard see/saw/seen feel/felt/felt remember notice "
            "understand/understood/understood",
    .wanting =
            "want try like love need decide begin+/began/begun start learn "
            "hope plan refuse forget+/forgot/forgotten promise hate prefer+ "
            "agree",
    .manner =
            "quickly slowly suddenly quietly carefully happily loudly gently "
            "quietly well badly hard fast together alone easily silently "
            "angrily sadly nervously bravely secretly politely proudly eagerly "
            "patiently softly clearly",
    .frequency =
            "always often never sometimes usually rarely finally really just "
            "already still also almost only probably certainly immediately "
            "nearly even",
    .when =
            "yesterday today tomorrow tonight now then soon again here there "
            "everywhere outside inside later upstairs away recently together "
            "early late once twice",
    .function = {
        [DETERMINERS] =
            "the a an this that these those my your our his her its their "
            "every each another no some many all several few both most any two "
            "three four five six seven eight nine ten hundred what which whose",
        [PRONOUNS] =
            "i you we he she it they me us him them his her its their myself "
            "himself herself itself who which that what whom this these "
            "everyone nobody something nothing someone everybody",
        [PREPOSITIONS] =
            "in at on near behind under with to into from through across for "
            "by of around against between inside outside during without above "
            "below beside along toward onto like over about before after since "
            "until off up down",
        [REASONS] = "because since as so",
        [CONJUNCTIONS] =
            "and but or when while if although before after until though "
            "unless that than",
        [BEING] =
            "was were is are am be been being has have had do does did isn't "
            "aren't wasn't weren't",
        [HELPERS] =
            "will would can could must should may might shall not never didn't "
            "couldn't doesn't don't won't can't wouldn't shouldn't hasn't "
            "haven't hadn't cannot too very so quite rather extremely really "
            "more most enough up down away off on over out about there to "
            "please yes oh what where why how when who then",
        [STOPS] = ". , ! ? ; : \" -"}};
/* clang-format on */
