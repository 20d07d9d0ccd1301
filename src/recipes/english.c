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
            "duck wolf/wolves tiger lion frog pig sheep/sheep chicken "
            "elephant monkey snake spider bee ant butterfly fish/fish whale "
            "shark dolphin turtle lizard crocodile deer/deer donkey camel "
            "giraffe zebra kangaroo panda koala squirrel hedgehog hamster "
            "rat bat owl eagle hawk crow raven pigeon dove sparrow parrot "
            "penguin swan goose/geese turkey rooster hen puppy kitten lamb "
            "calf/calves pony bull ox/oxen buffalo/buffaloes leopard "
            "cheetah jaguar panther gorilla chimpanzee otter beaver raccoon "
            "mole seal crab lobster snail worm beetle fly "
            "mosquito/mosquitoes moth dragon dinosaur creature pet beast "
            "insect kitty goldfish/goldfish",
        [MAN] =
            "man/men boy king father brother uncle prince son grandfather "
            "husband nephew grandson gentleman/gentlemen dad "
            "policeman/policemen fireman/firemen businessman/businessmen "
            "monk waiter actor lord emperor wizard groom guy grandpa "
            "boyfriend sir stepfather salesman/salesmen",
        [WOMAN] =
            "woman/women girl queen mother sister aunt princess daughter "
            "grandmother wife/wives niece granddaughter lady mom "
            "policewoman/policewomen nun waitress actress witch bride "
            "businesswoman/businesswomen empress grandma girlfriend madam "
            "stepmother saleswoman/saleswomen mum",
        [PERSON] =
            "person/people child/children student worker farmer soldier "
            "dancer teacher doctor nurse friend neighbor baby pilot driver "
            "cook chef baker artist painter writer author poet singer "
            "musician player guest visitor tourist customer stranger "
            "traveler hunter fisherman/fishermen sailor captain guard "
            "thief/thieves judge lawyer engineer scientist programmer "
            "researcher professor manager boss leader president minister "
            "officer detective spy gardener carpenter builder plumber "
            "mechanic dentist patient partner cousin parent kid teenager "
            "adult hero/heroes winner runner swimmer coach fan reader "
            "speaker expert beginner owner buyer seller clerk secretary "
            "librarian reporter journalist photographer model star clown "
            "magician pirate knight rider passenger citizen twin miner "
            "physicist philosopher user developer employee employer "
            "colleague enemy team family crowd group police/police company "
            "grandparent classmate roommate witness criminal prisoner "
            "priest politician mayor translator editor architect designer "
            "athlete champion member client agent assistant volunteer "
            "foreigner couple audience government army human",
        [HE_NAME] =
            "tom peter paul john james david michael robert william george "
            "henry jack sam ben daniel adam alex max leo oscar bob charlie "
            "frank joe mark steve thomas harry oliver noah lucas martin "
            "simon eric kevin andrew tim nick jim bill richard edward "
            "charles brian chris jason luke nathan patrick philip ryan "
            "matthew anthony josh jacob ethan liam ahmed ali carlos pedro "
            "hans karl ivan smith johnson brown einstein shakespeare",
        [SHE_NAME] =
            "anna mary lisa emma sarah julia laura maria alice jane kate "
            "lucy sophie emily olivia eva clara nina ella grace rose helen "
            "susan linda amy rachel molly ruby hannah lily sofia mia zoe "
            "diana carol betty nancy claire elizabeth victoria margaret "
            "barbara jennifer jessica ashley sandra donna karen lea ana "
            "fatima ingrid natasha sara katie megan chloe",
        [MACHINE] =
            "robot machine crane drone computer printer engine camera phone "
            "laptop tablet clock pump oven fridge washer dryer heater fan "
            "motor radio television screen server sensor scanner telescope "
            "microscope calculator device vacuum elevator satellite rocket "
            "mixer toaster microwave freezer alarm speaker smartphone "
            "keyboard monitor headphone refrigerator dishwasher tv headset "
            "projector console app website system network",
        [VEHICLE] =
            "car bus truck train bike bicycle motorcycle taxi van tractor "
            "boat ship plane airplane helicopter tram ferry ambulance "
            "scooter wagon cart sled submarine canoe yacht jet skateboard "
            "subway lorry carriage rocket spaceship minibus limousine",
        [WAY] =
            "street road river bridge field lake path valley highway canal "
            "stream sea ocean desert border trail square tunnel swamp "
            "avenue lane creek bay pond forest mountain hill meadow island "
            "coast beach shore plain jungle crossing track line sidewalk "
            "crosswalk waterfall",
        [PLACE] =
            "house garden school park kitchen city town village room office "
            "shop store market hospital church temple station airport hotel "
            "restaurant library museum theater cinema bank castle palace "
            "tower farm barn cave zoo factory gym bathroom bedroom basement "
            "attic hall corridor balcony yard playground stadium harbor "
            "port camp tent cabin hut apartment building home cafe bar "
            "bakery prison court university college classroom laboratory "
            "lab studio garage world country land state corner center pool "
            "kingdom neighborhood downtown ground space stage capital "
            "supermarket toilet restroom pharmacy bookstore mall "
            "kindergarten cathedral mosque monument gallery clinic embassy "
            "address region area place spot continent planet north south "
            "east west lobby",
        [THING] =
            "block box ball cup book vase stone toy bag trophy suitcase "
            "bottle glass plate bowl spoon fork knife/knives pen pencil "
            "brush hammer nail key coin ring watch mirror lamp candle "
            "umbrella basket bucket rope stick net bell drum guitar piano "
            "violin flute doll kite balloon gift present card ticket flag "
            "mask crown sword shield gun bow arrow bone shell feather egg "
            "nest wheel tool ladder shovel saw axe needle button string "
            "chain lock blanket pillow towel soap sponge broom pot pan "
            "kettle tray jar can lid package parcel envelope stamp wallet "
            "purse backpack medal prize diamond pearl jewel rock brick log "
            "wire cable battery bulb magnet cube puzzle object thing item "
            "statue painting picture photo poster window door gate fence "
            "wall roof pack sheet paper calendar notebook eraser ruler "
            "scissors/scissors glasses/glasses sunglasses/sunglasses laptop "
            "remote charger passport visa license bill cigarette match",
        [FURNITURE] =
            "table chair bed desk sofa couch shelf/shelves bench mat carpet "
            "rug floor cupboard drawer wardrobe stool cabinet "
            "bookshelf/bookshelves armchair cradle counter seat hammock "
            "mattress branch step stair windowsill",
        [FOOD] =
            "apple cake fish/fish bread cheese soup carrot pear banana "
            "orange lemon grape cherry strawberry peach plum melon "
            "mango/mangoes tomato/tomatoes potato/potatoes onion cucumber "
            "pepper bean pea rice corn nut peanut cookie pie pizza sandwich "
            "burger sausage steak salad noodle dumpling egg pancake "
            "chocolate candy honey sugar butter jam yogurt cream biscuit "
            "breakfast lunch dinner meal snack dish dessert fruit vegetable "
            "meat beef pork chicken ham bacon grain hay grass seed berry "
            "pasta toast mushroom pumpkin cabbage garlic food tofu sushi "
            "curry sauce kebab ice pineapple avocado/avocados coconut "
            "spinach broccoli shrimp hamburger",
        [DRINK] =
            "water milk tea coffee juice beer wine lemonade cocoa soda oil "
            "medicine whisky vodka smoothie",
        [PLANT] =
            "flower plant tree rose tulip bush leaf/leaves oak pine palm "
            "cactus daisy sunflower lily orchid fern vine weed moss willow "
            "maple bamboo",
        [CLOTHES] =
            "shirt coat hat dress skirt jacket sweater scarf/scarves glove "
            "shoe boot sock tie belt suit uniform jeans/jeans "
            "trousers/trousers cap costume apron sandal slipper "
            "pajamas/pajamas vest shorts/shorts pants/pants raincoat",
        [WRITING] =
            "letter story poem song novel newspaper magazine message email "
            "article report diary list note sentence word page chapter "
            "document essay script map menu recipe dictionary textbook "
            "paper movie film show program video game joke speech paragraph "
            "contract text book post blog comment review password file "
            "picture photo play invitation",
        [IDEA] =
            "idea plan problem question answer secret dream truth lesson "
            "rule law reason result mistake success danger war peace job "
            "task test exam project decision language culture theory method "
            "model attention meaning name number color price fact example "
            "information news/news promise offer theorem equation proof "
            "code bug feature experiment work business trip journey "
            "vacation future past accident crime mystery chance opportunity "
            "opinion thought feeling memory skill habit relationship "
            "marriage friendship difference choice goal reply request order "
            "change event situation life/lives system society economy score "
            "point topic subject course class degree experience appointment "
            "interview conversation discussion argument concert party "
            "meeting wedding",
        [NATURE] =
            "sun moon star wind storm rain snow cloud fire smoke fog "
            "thunder lightning ice wave flood earthquake volcano/volcanoes "
            "rainbow shadow light sunlight weather sky temperature breeze "
            "hurricane tornado/tornadoes heat frost",
        [MATTER] =
            "gold silver sand wood iron steel plastic cotton wool leather "
            "silk salt flour dust mud clay paint glue money ink air blood "
            "furniture luggage equipment gas petrol coal cash trash garbage "
            "electricity energy steam",
        [BODY] =
            "hand head face eye ear nose mouth arm leg foot/feet finger "
            "tail wing paw back hair tooth/teeth neck shoulder knee heart "
            "voice brain stomach skin lip tongue chest thumb toe bone body",
        [TIME] =
            "morning evening afternoon night day week month year winter "
            "summer spring autumn weekend holiday monday tuesday wednesday "
            "thursday friday saturday sunday january june july christmas "
            "birthday hour minute moment dawn noon midnight february march "
            "april may august september october november december second "
            "season century decade easter",
        [CITY] =
            "paris london berlin rome madrid vienna moscow beijing shanghai "
            "tokyo york chicago boston washington sydney delhi cairo dubai "
            "istanbul athens amsterdam brussels lisbon dublin prague warsaw "
            "budapest stockholm oslo copenhagen helsinki munich hamburg "
            "milan venice florence barcelona singapore bangkok seoul "
            "toronto vancouver texas california florida hawaii france "
            "germany italy spain england britain ireland scotland portugal "
            "greece poland russia ukraine turkey china japan korea india "
            "vietnam thailand indonesia australia canada mexico brazil "
            "argentina egypt kenya africa asia europe america sweden norway "
            "denmark finland austria switzerland holland belgium israel "
            "iran iraq pakistan manchester oxford cambridge mars",
        [ACTIVITY] =
            "football tennis basketball soccer chess golf hockey baseball "
            "volleyball rugby homework housework music english german "
            "french spanish chinese japanese italian russian latin greek "
            "math mathematics physics chemistry biology history geography "
            "art poetry philosophy yoga love happiness life death work "
            "school fun traffic advice research progress money time nature "
            "weather science politics religion technology software "
            "education health sleep sport sports help exercise"},
    .adjectives = {
        [OF_LIVING] =
            "tired hungry scared lazy angry sleepy brave sick curious "
            "thirsty afraid happy sad lonely nervous excited bored shy calm "
            "gentle fierce wild young weak blind deaf asleep awake alive "
            "dead clever stupid friendly playful impatient exhausted "
            "frightened worried surprised confused greedy stubborn timid "
            "cautious restless healthy wounded injured drunk ill anxious "
            "upset furious jealous proud sorry glad wet hurt pregnant "
            "unhappy strong cute fat thin tall short dangerous",
        [OF_HUMAN] =
            "polite rude rich poor famous honest kind busy late early ready "
            "smart talented experienced patient careful careless serious "
            "funny strict generous selfish wise foolish guilty innocent "
            "grateful popular religious ambitious creative modest loyal "
            "responsible successful unemployed married nice good great fine "
            "okay single lucky right wrong sure certain tired interested "
            "disappointed alone beautiful handsome intelligent lovely "
            "wonderful angry blond german french english american chinese "
            "japanese british italian russian",
        [OF_MACHINE] =
            "broken slow strong clumsy fast noisy rusty efficient reliable "
            "faulty defective automatic electric overheated outdated "
            "powerful unreliable loud obsolete new modern expensive cheap "
            "dangerous",
        [OF_WAY] =
            "wide deep busy long icy flooded narrow slippery steep crowded "
            "dangerous muddy frozen closed blocked rocky bumpy shallow endless "
            "broad winding",
        [OF_PLACE] =
            "empty full open quiet peaceful haunted bright dark remote "
            "nearby clean spacious cozy modern ancient abandoned lively "
            "luxurious beautiful far near dangerous safe nice cold warm "
            "famous crowded expensive free",
        [OF_THING] =
            "light heavy fragile cheap big expensive small solid sharp "
            "blunt hollow smooth rough round square flat useful useless "
            "precious valuable shiny wooden metal plastic breakable "
            "portable bulky sturdy cracked sticky long short thin thick "
            "wide narrow hard soft wet dry",
        [OF_FOOD] =
            "sweet fresh ripe tasty delicious salty bitter sour spicy "
            "rotten raw juicy crispy moldy stale cooked burnt healthy "
            "greasy good hot cold frozen expensive cheap ready",
        [OF_DRINK] = "hot cold warm cool boiling strong pure icy lukewarm clear",
        [OF_PLANT] =
            "dry tall green thirsty blooming thorny leafy withered dead "
            "evergreen",
        [OF_CLOTHES] =
            "dirty tight loose torn elegant comfortable warm fashionable "
            "stylish wet ragged woolen wrinkled long short expensive cheap",
        [OF_WRITING] =
            "boring interesting difficult easy important true false wrong "
            "right simple complicated secret exciting strange clear "
            "confusing funny long short brilliant crazy possible impossible "
            "perfect terrible wonderful nice good bad great helpful useful "
            "clever serious famous necessary new hard dangerous free fun",
        [OF_NATURE] =
            "violent heavy mild bright terrible gentle sudden thick strong "
            "nice cold hot warm sunny rainy cloudy windy foggy cool humid "
            "freezing bad good beautiful wet dry",
        [OF_ALL] =
            "quick red blue green yellow black white brown gray pink purple "
            "orange golden old new big small large little tiny huge "
            "beautiful ugly nice good bad great pretty lovely strange "
            "special favorite first last next other same different whole "
            "best worst biggest smallest fastest oldest youngest tallest "
            "longest strongest cheapest highest real main second third "
            "amazing awful horrible fantastic excellent cool own wrong"},
    .frames = {
        {
            "cross leave/left/left avoid reach explore enter pass "
            "see/saw/seen follow block drive/drove/driven",
         ACTIVE | 1 << VEHICLE, 1 << WAY},
        {
            "visit leave/left/left enter reach like love hate clean "
            "find/found/found explore see/saw/seen remember "
            "forget+/forgot/forgotten know/knew/known prefer+ miss describe "
            "show/showed/shown",
         ALIVE, 1 << PLACE | 1 << CITY},
        {
            "pick=up drop+ carry push pull move lift "
            "throw=away/threw/thrown take/took/taken bring/brought/brought "
            "hold/held/held put=down/put/put break/broke/broken "
            "find/found/found lose/lost/lost hide/hid/hidden "
            "steal/stole/stolen touch grab+ drag+ catch/caught/caught kick "
            "hit+/hit/hit keep/kept/kept roll knock=over pick open close "
            "turn=on turn=off pack shake/shook/shaken",
         ACTIVE, 1 << THING | 1 << FURNITURE},
        {
            "buy/bought/bought sell/sold/sold repair fix build/built/built "
            "use make/made/made clean wash paint borrow need want like love "
            "hate own collect examine check design create test replace "
            "return order have/had/had get+/got/got prefer+ "
            "choose/chose/chosen wear/wore/worn rent share send/sent/sent "
            "count draw/drew/drawn measure download install",
         HUMAN, GOODS | 1 << FURNITURE},
        {
            "eat/ate/eaten steal/stole/stolen find/found/found smell taste "
            "like love want taste share have/had/had",
         ALIVE, 1 << FOOD},
        {
            "cook bake prepare cut+/cut/cut buy/bought/bought "
            "sell/sold/sold throw=away/threw/thrown order fry serve finish "
            "boil mix",
         HUMAN, 1 << FOOD},
        {
            "drink/drank/drunk spill pour like want need taste",
         ALIVE, 1 << DRINK},
        {
            "buy/bought/bought sell/sold/sold use need find/found/found "
            "bring/brought/brought",
         HUMAN, 1 << DRINK | 1 << MATTER},
        {
            "water plant cut=down/cut/cut grow/grew/grown pick see/saw/seen "
            "love climb smell",
         HUMAN, 1 << PLANT},
        {
            "climb see/saw/seen find/found/found destroy smell",
         1 << ANIMAL, 1 << PLANT},
        {
            "wear/wore/worn wash buy/bought/bought take=off/took/taken "
            "put=on/put/put iron fold sew",
         HUMAN, 1 << CLOTHES},
        {
            "read/read/read write/wrote/written hear/heard/heard "
            "tell/told/told watch print translate sing/sang/sung study "
            "finish publish sign send/sent/sent receive delete start repeat "
            "post type check copy like love hate remember "
            "forget+/forgot/forgotten mean/meant/meant",
         HUMAN, 1 << WRITING},
        {
            "understand/understood/understood explain solve discuss "
            "have/had/had learn study answer forget+/forgot/forgotten "
            "remember know/knew/known change like hate accept reject "
            "teach/taught/taught find/found/found describe discover "
            "think=about/thought/thought do/did/done start finish stop+ "
            "need want love repeat enjoy prepare take/took/taken "
            "make/made/made prefer+ pass win+/won/won lose/lost/lost "
            "get+/got/got ask mean/meant/meant cancel begin+/began/begun "
            "share check celebrate",
         HUMAN, 1 << IDEA},
        {
            "drive/drove/driven ride/rode/ridden park steal/stole/stolen "
            "wash stop+ start hear/heard/heard miss",
         HUMAN, 1 << VEHICLE | 1 << MACHINE},
        {
            "thank ask answer baffle see/saw/seen follow help chase call "
            "meet/met/met watch find/found/found hear/heard/heard love hate "
            "hug+ kiss greet attack protect save teach/taught/taught "
            "feed/fed/fed catch/caught/caught bite/bit/bitten miss "
            "leave/left/left fight/fought/fought wake=up/woke/woken "
            "lead/led/led trust invite visit warn beat/beat/beaten ignore "
            "admire like remember praise blame punish believe hire fire "
            "support need want pull push disappoint marry kill "
            "hurt/hurt/hurt choose/chose/chosen prefer+ join "
            "forgive/forgave/forgiven understand/understood/understood",
         ALIVE, ALIVE},
        {
            "look stare fall=down/fell/fallen sleep/slept/slept "
            "run+/ran/run walk jump swim+/swam/swum play sit/sat/sat "
            "sit+=down/sat/sat stand/stood/stood stand=up/stood/stood "
            "lie/lay/lain wait hide/hid/hidden fall/fell/fallen rest "
            "eat/ate/eaten drink/drank/drunk live die come/came/come "
            "go/went/gone arrive return stay dance sing/sang/sung cry "
            "scream rest wake=up/woke/woken dream move escape disappear "
            "appear listen fight/fought/fought grow/grew/grown turn hurry "
            "breathe relax",
         ALIVE, 0},
        {
            "work smile laugh travel talk speak/spoke/spoken study cook "
            "read/read/read write/wrote/written win+/won/won lose/lost/lost "
            "pray shout whisper argue pay/paid/paid vote drive/drove/driven "
            "leave/left/left help graduate retire celebrate "
            "swear/swore/sworn think/thought/thought exercise shop+ camp "
            "text joke succeed complain apologize worry",
         HUMAN, 0},
        {
            "stop+ start work move break=down/broke/broken explode crash "
            "arrive leave/left/left run+/ran/run fail wait turn "
            "fly/flew/flown turn=off",
         1 << MACHINE | 1 << VEHICLE, 0},
        {
            "rain snow shine/shone/shone rise/rose/risen fall/fell/fallen "
            "come/came/come stop+ start disappear appear burn "
            "blow/blew/blown set+/set/set boil melt freeze/froze/frozen "
            "change fade happen",
         1 << NATURE, 0},
        {
            "fit+/fit/fit fall/fell/fallen break/broke/broken roll "
            "disappear cost/cost/cost belong lie/lay/lain stand/stood/stood "
            "hang/hung/hung shine/shone/shone burn happen boil open close "
            "change smell taste",
         1 << THING | 1 << FURNITURE | 1 << CLOTHES | 1 << PLANT | 1 << FOOD, 0},
        {
            "speak/spoke/spoken learn study teach/taught/taught like love "
            "hate understand/understood/understood play enjoy "
            "know/knew/known practice do/did/done need prefer+ want "
            "have/had/had",
         HUMAN, 1 << ACTIVITY},
        {
            "have/had/had",
         HUMAN, PEOPLE | 1 << ANIMAL | GOODS | 1 << PLACE | 1 << BODY},
        {
            "happen begin+/began/begun start end continue change matter "
            "help stop+",
         1 << IDEA | 1 << ACTIVITY | 1 << WRITING, 0}},
    .giving =
            "give/gave/given show send/sent/sent bring/brought/brought "
            "offer hand lend/lent/lent teach/taught/taught tell/told/told "
            "buy/bought/bought sell/sold/sold pay/paid/paid read/read/read "
            "write/wrote/written make/made/made throw/threw/thrown",
    .saying =
            "say/said/said think/thought/thought know/knew/known believe "
            "hope hear/heard/heard see/saw/seen feel/felt/felt remember "
            "notice understand/understood/understood guess find/found/found "
            "mean/meant/meant dream/dreamt/dreamt wish agree doubt realize "
            "suppose imagine decide admit",
    .wanting =
            "want try like love need decide begin+/began/begun start learn "
            "hope plan refuse forget+/forgot/forgotten promise hate prefer+ "
            "agree seem manage expect choose/chose/chosen wish fail prepare",
    .enjoying =
            "like love hate enjoy start begin+/began/begun stop+ prefer+ "
            "finish avoid",
    .asking =
            "tell/told/told ask want help teach/taught/taught order allow "
            "invite force expect need warn remind advise encourage",
    .linking =
            "become/became/become get+/got/got feel/felt/felt look seem "
            "stay sound grow/grew/grown",
    .comparing =
            "bigger smaller larger faster slower better worse older younger "
            "taller shorter longer stronger weaker cheaper colder warmer "
            "hotter heavier lighter easier harder happier nicer richer "
            "poorer smarter cleverer higher lower deeper wider louder "
            "quieter brighter darker cleaner newer earlier later closer "
            "busier funnier prettier safer",
    .manner =
            "quickly slowly suddenly quietly carefully happily loudly "
            "gently well badly hard fast together alone easily silently "
            "angrily sadly nervously bravely secretly politely proudly "
            "eagerly patiently softly clearly beautifully perfectly "
            "terribly slightly differently completely correctly exactly "
            "deeply closely freely seriously honestly calmly regularly "
            "automatically",
    .frequency =
            "always often never sometimes usually rarely finally really "
            "just already still also almost only probably certainly "
            "immediately nearly even ever maybe perhaps actually simply "
            "soon seldom hardly normally",
    .when =
            "yesterday today tomorrow tonight now then soon again here "
            "there everywhere outside inside later upstairs away recently "
            "together early late once twice nowadays somewhere anywhere "
            "nowhere downstairs abroad forever home ago somehow back",
    .function = {
        [DETERMINERS] =
            "the a an this that these those my your our his her its their "
            "every each another no some many all several few both most any "
            "two three four five six seven eight nine ten hundred what "
            "which whose one twenty thirty fifty thousand 1 2 3 4 5 6 7 8 9 "
            "10 11 12 20 30 50 100 1000 2024 2025 2026 much more less "
            "enough other such half",
        [PRONOUNS] =
            "i you we he she it they me us him them his her its their "
            "myself himself herself itself who which that what whom this "
            "these everyone nobody something nothing someone everybody mine "
            "yours hers ours theirs anyone anybody anything everything "
            "somebody yourself ourselves themselves those where",
        [PREPOSITIONS] =
            "in at on near behind under with to into from through across "
            "for by of around against between inside outside during without "
            "above below beside along onto like over about before after "
            "since until off up down front back past among than as within "
            "towards upon out",
        [REASONS] = "because since as so",
        [CONJUNCTIONS] =
            "and but or when while if although before after until though "
            "unless that than whether",
        [BEING] =
            "was were is are am be been has have had do does did isn't "
            "aren't wasn't weren't 's 'm 're",
        [HELPERS] =
            "will would can could must should may might shall not never "
            "didn't couldn't doesn't don't won't can't wouldn't shouldn't "
            "hasn't haven't hadn't cannot too very so quite rather "
            "extremely really more most enough up down away off on over out "
            "about there to please yes oh what where why how when who then "
            "mustn't 's 'll 've 'd let's as much well lot a ever yet left "
            "right back in going less far pretty ago many long old high "
            "deep tall big expensive luck",
        [STOPS] =
            ". , ! ? ; : \" - ( ) ... –",
        [GREETINGS] =
            "hello hi hey thanks thank goodbye bye sorry welcome yes no "
            "okay ok congratulations well oh please excuse forgive glad"}};
/* clang-format on */
