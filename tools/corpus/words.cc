#include "corpus/words.h"

#include <algorithm>
#include <cassert>
#include <map>

namespace needle::corpus {
namespace {

struct List {
  const char* name;
  const char* items;  // separated by spaces, or by '|' when an entry has spaces of its own
};

// clang-format off
constexpr List kLists[] = {
{"nouns",
 "ability access account acorn address advice agenda almond anchor angle ankle apple apron archive area arm arrow artist attic aunt autumn "
 "bag baker balance ball balloon banana band bank bar barn barrel basin basket bath battery bay beach beam bean bear bed bee bell belt bench "
 "berry bicycle bill bird biscuit blanket block blog board boat body boiler bolt bone book boot border boss bottle bottom bow bowl box boy "
 "brain branch brass brick bridge broom brother brush bucket budget building bus bush business butter button cabbage cabin cabinet cable "
 "cake calendar camera camp candle canoe canvas cap captain car carbon card carpet carrot case castle cat catalogue cattle cave cell centre "
 "chain chair chalk chance change channel chapter charge chart cheese cherry chest chicken chief chimney choice church circle city clay "
 "clerk client cliff climate clinic clock cloth cloud club coach coal coast coat code coffee coin collar college column comb committee "
 "company concert contract cook copper copy cord corn corner cotton couch council count country couple course court cousin cover cow "
 "crane cream creek crew crop cross crowd crown cup current curtain curve cushion customer cycle daisy dam damage dance data date daughter "
 "deal dealer debt decision deck deer degree delivery dentist depth desert design desk detail device diary dinner director dish disk "
 "distance doctor dog doll dolphin door double doubt dragon drain drama drawer dream dress drill drink driver drum duck dust eagle ear "
 "earth edge editor effect egg elbow energy engine engineer entry envelope error estate evening event evidence example exchange exit eye "
 "fabric face fact factory family fan farm farmer father fault feather fee feedback fence fern ferry festival field figure file film filter "
 "finger fire fish flag flame flat flight floor flour flower flute fog folder food foot forest fork form fountain fox frame friend frog "
 "front fruit fuel funnel furniture future gallery game garden garlic gas gate gear gift ginger girl glass glove glue goal goat gold goose "
 "grain grape graph grass ground group guard guest guide guitar hall hammer hand handle harbour harvest hat hawk hazel head health heart "
 "heat hedge height helmet help herb highway hill hinge history hobby hole holiday honey hood hook horse hospital host hotel hour house "
 "ice idea image index ink insect inside interest invoice iron island item jacket jam jar jeans jewel job joint joke journey judge juice "
 "jump kettle key kid king kite knee knife knot lab label ladder lady lake lamb lamp land lane laptop law lawn lawyer layer lead leader "
 "leaf leather lemon lens letter level library lid life lift light lily limit line link lion list loan lobby lock log loop lot lunch "
 "machine magnet mail manager map maple marble margin mark market mask mast master mat match meal measure meat medal melody member memory "
 "menu message metal meter method middle mile milk mill mind mint minute mirror mist mixer model moment money monkey month moon morning "
 "mother motor mountain mouse mouth movie mud mug muscle museum mushroom nail name napkin neck needle nephew nerve nest net network news "
 "newspaper night noise noodle north nose notebook notice novel number nurse nut oak oar oats ocean offer office oil olive onion opera "
 "option orange orbit orchard order organ otter outlet oven owl owner oyster pack paddle page pain paint pair palace palm pan panel paper "
 "parcel parent park parrot part party passport paste pasture path patient pattern pea peach pear pearl pen pencil pepper permit person "
 "phone photo piano picnic picture pie piece pig pillow pilot pin pine pipe pit pizza place plan plane plant plate platform plot plum "
 "pocket poem poet point pole police pond pony pool port portrait post pot potato powder power present press price print prize problem "
 "process profile profit project promise proof pump puppet puppy purse puzzle quarter queen question quilt quiz rabbit race rack radio "
 "raft rail rain ramp range raven ray reason receipt recipe record reef refund region rent repair reply report rescue resort rest result "
 "review reward ribbon rice ride ring risk river road robin robot rock rocket roof room root rope rose route row rubber rug rule sail "
 "salad sale salmon salt sample sand sauce scale scarf scene schedule school science score screen screw sea seal season seat secret "
 "section seed series server service session shadow shape share shed sheep sheet shelf shell shift ship shirt shoe shop shore shoulder "
 "shovel shower side sign signal silk silver singer sister site size skill skin skirt sky sleeve slice slide slope smoke snack snail snake "
 "snow soap sock sofa soil song soup source south spade spark speaker spice spider spoon spot spring square stable staff stage stair stamp "
 "star start state statue steam steel stem step stew stick stock stone stool storage store storm story stove straw stream street string "
 "student studio style subject sugar suit summer sun supper supply surface swan sweater switch symbol syrup system table tail tailor tank "
 "tape target task tax taxi tea teacher team tent term test text theatre theme thread ticket tide tile timber tin tip title toast toe "
 "tomato ton tool tooth top torch tower town toy track trade trail train tray treat tree trip trolley trophy truck trumpet trunk tulip "
 "tunnel turkey turn turtle twin tyre uncle union unit update user valley value van vase vegetable vehicle veil vein version vest view "
 "village vine violin visit voice volume vote voyage wagon waiter walk wall wallet walnut watch water wave wax weapon wedding week weight "
 "west whale wheat wheel whistle widow width wife willow window wing winner winter wire witness wolf wood wool word work worker world worm "
 "wrist writer yard yarn year yogurt zebra zone"},
{"verbs",
 "accept add adjust admire answer approve arrange ask attach bake block boil borrow bring brush build buy call cancel carry catch "
 "change charge check chop clean climb close collect compare confirm connect control cook copy count cover cut deliver describe design "
 "draw drop dry empty enter examine exchange expect explore feed fetch fill find finish fix fold follow forward freeze gather get "
 "give grab grow guard guess hang heat help hide hire hold improve inspect invite iron join keep kick lay lead learn leave lend lift "
 "list load lock lower mail make mark measure meet mend mix move notice offer open order organise pack paint park pass pay peel pick "
 "place plant polish post pour practise prepare press print protect prove pull push put raise reach read receive record remember "
 "remove renew rent repair repeat replace rescue return review rinse roll save scan search sell send separate serve share sharpen "
 "shift show sign sort spread stack start stop store study support sweep switch take taste teach test throw tidy tie touch track trade "
 "train trim trust try turn twist unlock unpack update use visit wait warn wash water wear weigh wipe wrap write"},
{"adjectives",
 "able amber ancient angry autumn bare basic bitter black blank blue bold brave bright broad broken brown busy calm careful cheap clean "
 "clear clever cold common cool correct crisp curious daily damp dark dear deep dry dull dusty early east easy empty equal exact extra "
 "faint fair false famous fancy fast final fine firm first flat fond formal free fresh frozen full gentle giant glad golden good grand "
 "gray great green grey half happy hard heavy hidden high hollow honest hot huge hungry idle inner jolly keen kind large last late lazy "
 "lean left light little local lone long loose loud lovely low lucky mad main major married mellow mild minor misty modern narrow "
 "native neat new next noble noisy normal odd old only open outer pale past patient perfect pink plain pleasant polite poor pretty "
 "private proper proud public pure purple quick quiet rapid rare raw ready real red regular rich ripe rough round royal rusty sad safe "
 "salty same second secret senior serious shallow sharp short shy sick silent silver simple single slim slow small smart smooth soft "
 "solid sour spare special square steep sticky still straight strange strict strong sudden sunny sweet swift tall tame tender thick thin "
 "third tidy tight tiny tired total tough true ugly upper urgent useful usual vast velvet violet warm weak weekly wet white whole wide "
 "wild wise wooden wrong yellow young"},
{"adverbs",
 "again almost alone already always away badly before carefully daily directly early easily even ever finally gently hardly indoors "
 "inside instead just later maybe nearly never nicely often once outside perhaps quietly rarely really slowly somewhere soon still "
 "together tomorrow tonight twice upstairs usually weekly well yesterday"},
{"glue",
 "a about above across after all an any around as at because before behind below beside between but by down during each every for from "
 "he her here him his how if in into is it its like more my near no not of off on once one or our out over she since so some than that "
 "the their them then there they this three through to too two under until up us very we what when where which while who why will with "
 "without you your can do does did has have had was were be been are am"},
{"pronounced", "I we you they he she it everyone nobody someone"},
{"texts_after",
 "before noon|after work|on the way home|next week|by the weekend|at the station|in the morning|twice a day|every other week|until it is dry|"
 "for the whole family|with the spare key|without the lid|under the stairs|behind the shed|near the river|from the north side|"
 "at half past nine|as soon as possible|in front of the shop|if it rains|when the guests leave|between the two walls|"
 "over the long weekend|during the night|once it stops raining|at a quarter to six|for about an hour"},
{"people",
 "Adam Agnes Aisha Alba Alma Amara Amir Anders Anika Anton Arjun Astrid Aurora Bastian Bea Benoît Bianca Björn Bruno Carla Carmen Cecilia "
 "Cédric Clara Cyrus Dagny Dalia Damian Danika Dario Dina Dorian Edith Eero Elif Elina Emil Enzo Eskil Esther Fabio Fatima Felix Fiona Flora "
 "Frida Gabor Gemma Georg Gia Gustav Hana Hannes Hedda Helga Hugo Ida Ilse Imre Ingrid Irène Isak Ivo Jakub Jana Jasper Jelena Joaquín Jonas "
 "Josefa Judit Kaito Kamil Karin Kasper Katya Kenji Kiran Klara Lars Laszlo Leila Lena León Lior Lotte Lucía Luka Mads Magda Maja Malik Manu "
 "Marek Margit Mateo Matías Mei Milan Milo Mira Nadia Naomi Nils Nina Noa Nora Núria Ola Olga Omar Orla Oscar Otto Pablo Paola Pavel Pedro "
 "Petra Pia Raúl Ravi Renata Rhea Rosa Ruben Sami Sana Sanna Selma Sergio Signe Silvia Simona Sofía Soledad Stellan Sunniva Tarek Tessa "
 "Theo Tilda Timo Tomás Tove Ugo Ulla Uma Vera Viktor Vilma Wanda Willem Xavi Yara Yusuf Zeno Zofia Zora Żaneta Łukasz Ólafur Øyvind Åse Çağla Şirin"},
{"foreign",
 "Анна Борис Галина Дмитрий Ирина Олег Ольга Тарас Юлия Αλέξης Ελένη Νίκος Σοφία Δήμητρα 健太 美咲 李娜 王伟 さくら はるか 지민 서연 민수 ليلى عمر "
 "נועה दीपा राहुल สมชาย ანა Գոհար"},
{"cities",
 "Aarau Ankara Arusha Athens Baku Bamako Basel Bilbao Bogotá Bremen Brno Cádiz Calgary Cardiff Cluj Cork Cuzco Dakar Delft Denver Dhaka Dijon "
 "Dublin Durban Faro Fukuoka Galway Gdańsk Geneva Genoa Ghent Graz Győr Haifa Halifax Helsinki Jaipur Jena Kaunas Kigali Kumasi Leeds Leipzig León "
 "Liège Linz Ljubljana Łódź Luanda Lübeck Lund Lyon Madrid Malaga Manila Medellín Mérida Milan Minsk Nantes Naples Odense Omaha Oulu Padua "
 "Palermo Pécs Pune Quebec Rabat Reykjavík Riga Rouen Salta Santiago Sapporo Seoul Sibiu Skopje Sofia Split Tallinn Tampere Tartu Tbilisi "
 "Tirana Toledo Tours Tromsø Trondheim Tunis Turin Umeå Utrecht Valencia Varna Vienna Vilnius Winnipeg Wrocław Xi'an Yerevan Zadar Zagreb"},
{"placeparts",
 "Street|Road|Avenue|Square|Hill|Park|Quay|Court|Market|Tower|Terminal|Plaza|Crossing|Field|Wharf|Yard|Arcade|Garden|Grove|Corner|Heights|Point|West|South|East|Hall"},
{"topics",
 "volcanoes|black holes|the violin|penguins|democracy|quantum mechanics|baroque music|the steam engine|photosynthesis|card tricks|dinosaurs|"
 "the stock market|origami|tectonic plates|honey|the printing press|whale song|yoghurt|the alphabet|sleep|rainbows|the Vikings|coral reefs|"
 "inflation|poetry|zero|string theory|cheese making|the tides of history|beekeeping|calculus|opera|medieval castles|the periodic table|"
 "electric eels|gravity|tea ceremonies|café culture|jazz|the Silk Road|fractals|mushrooms|Ω particles|déjà vu|free will|knitting patterns|cave paintings|"
 "the number π|snowflakes|mirrors|dreams|umami|weaving|robots|the ocean floor|ancient Rome|sundials|magnetism|typography|lightning|moss|"
 "stage magic|the metric system|fireflies|salt|barometers|puppetry|comets|folk dances|windmills|crossword clues|birds of prey|cartography"},
{"common",
 "absent academy accident achieve action active activity actor addition adventure afraid agency agreement aim alarm album alive allow alphabet alternate "
 "altitude amazing ambition ancestor announce annual anxious apart apologise appear application appoint approach argument arrange arrival arrive article "
 "aspect assist assume attempt attend attention audience author authority available average avoid award aware background bakery barrier basis battle "
 "beauty become begin behave belief belong beneath benefit between beyond birth boring bother bounce breakfast breath breeze brief burn calculate calm "
 "campaign candidate capable capital career carriage celebrate central century ceremony certain chairman challenge character charity charming chemical "
 "childhood chocolate citizen classic colony colour comfort command comment commerce common communicate community competition complain complete complex "
 "concern conclude condition conduct conference confidence conflict confuse connection conscious consider consist constant construct contain contest "
 "context continue contrast contribute convenient conversation convert convince corridor cottage courage create creature credit crisis critic culture "
 "curious currency custom danger daylight debate decade declare decline decorate defeat defend define delay delicate delight demand deny depart department "
 "depend deposit describe deserve despite destination destroy determine develop differ difficult digital dignity direction director disappear discover "
 "discuss disease distant district divide document domestic drift during dynamic eager earn economy educate effort elect electric element emerge emotion "
 "emphasis employ enable encourage enemy engage enjoy enormous ensure enterprise entire environment episode equipment escape essay essential establish "
 "evening eventually everything evil evolve exact excellent except excite exclude excuse execute exercise exist expand expense experience experiment "
 "expert explain export express extend extreme failure faith familiar fashion fate favour fear feature federal feeling fellow fever fiction final finance "
 "flavour flexible float focus folk force foreign forget formula fortune forward foundation fraction fragile freedom frequent function fundamental funny "
 "further general generate generous genius gesture glance global govern gradual grateful gravity guilty habit happen harmony hello hero hesitate highlight "
 "hunger hurry identify identity ignore illness imagine immediate impact imply import impose impress impulse include income increase independent "
 "indicate individual industry infant influence inform initial injury innocent inquiry inspire install instance instead institution instruction insurance "
 "intend intense interior internal interpret interrupt introduce invent invest investigate involve isolated journal junior justice justify kingdom "
 "kitchen knowledge language laugh launch length liberty library lifetime limited liquid literature living local location logic lonely lucky luxury "
 "magazine magic maintain major majority manage manner manual manufacture massive master match material matter mature maximum mayor meaning medical medium "
 "mental mention merchant mercy merge message military mineral minimum minister miracle missing mission mistake mobile moderate modest molecule monitor "
 "moral motion motive multiple murder museum music mutual mystery narrative nation nature navy necessary negative negotiate neighbour neither nervous "
 "neutral nobody nothing nuclear object oblige observe obtain obvious occasion occupy occur ocean offend official operate opinion opponent opportunity "
 "oppose optimist ordinary organic origin original otherwise outcome outfit overall overlook overseas package panic parliament partial participate "
 "particular partner passage passion passive patience pause peace penalty percent perfect perform period permanent persist personal persuade phase "
 "philosophy phrase physical planet platform pleasure plenty politics pollution popular portion position positive possess possible potential poverty "
 "practical praise predict prefer pregnant prejudice presence preserve president pressure pretend prevent previous priest primary prince principle prior "
 "priority prison privilege probable procedure proceed produce profession professor progress prominent promote proper property proportion propose prospect "
 "protest proud provide province public publish purchase pursue qualify quantity quarrel range rapid rather react reality realise rebel recall recent "
 "recognise recommend recover reduce reference reflect reform refuse regard regional register regret regular reject relate relation relative relax release "
 "relevant relief religion rely remain remark remind remote represent republic reputation request require research reserve resident resist resolve resource "
 "respect respond restrict retire reveal revenue reverse revolution rhythm rival romantic routine sacred sacrifice satisfy scatter schedule scholar science "
 "scratch season secure select senate sensible sensitive sentence separate sequence series serious settle severe shelter shine shock shoot shout sight "
 "signature similar sincere situation slight smart smile social society soldier solution solve somehow source spiritual split spoil sponsor spread stable "
 "standard statement station stimulate strain strategy strength stress stretch strike structure struggle stupid submit substance succeed success suffer "
 "sufficient suggest suitable summary supreme surprise surround survey survive suspect sustain swallow symptom talent technical technique technology "
 "temperature temple temporary tendency tension terrible territory theory therapy thought thousand threat thrive throughout tissue tobacco tolerate "
 "tomorrow tongue tradition traffic tragedy transfer transform translate transport travel tremble trend trial tribute triumph tropical trouble typical "
 "ultimate umbrella uncertain undergo understand undertake uniform unique universe university unless unlikely urban utility vacation vague valid variety "
 "various vehicle venture version vertical vessel veteran victim victory violence virtual virtue visible vision vital vocabulary volume volunteer vulnerable "
 "wander warrior waste wealth weather welcome welfare whatever whenever wherever whisper width wilderness willing wisdom wonder worry worth yesterday youth "
 "French German Polish Turkish Japanese Korean English Monday Tuesday Wednesday Thursday Friday Saturday Sunday Spring Summer Winter Autumn"},
{"onsets", "b|bl|br|c|ch|cl|cr|d|dr|f|fl|fr|g|gl|gr|h|j|k|kl|kr|l|m|n|p|pl|pr|qu|r|s|sh|sk|sl|sm|sn|sp|st|str|t|th|tr|tw|v|w|wh|y|z||||"},
{"nuclei", "a|a|a|a|e|e|e|e|i|i|i|i|o|o|o|u|u|ai|ea|ee|oo|ou|ie|au|y"},
{"codas", "||||||||||b|ck|d|f|g|k|l|ll|m|mp|n|nd|ng|nk|nt|p|r|rk|rn|s|sh|sk|ss|st|t|th|x|z"},
{"accents", "é|è|ö|ü|ä|ø|å|ñ|ç|š|ł|í|á|ó|ú|ê|ô|ă|ž|č|ő|ğ|ı|ã|õ|ï|ý|ř|ś|ń|æ|ß"},
// Pools of enum entries. A pool's name starts with '#'.
{"#rooms", "cellar|loft|pantry|porch|lounge|utility room|guest room|workshop|sauna|dining room|library|front hall|playroom|terrace|laundry room|greenhouse|boiler room|landing"},
{"#colours", "amber|teal|violet|ivory|crimson|olive|navy|pink|turquoise|dark grey|light green|orange|gold|silver|coral|indigo|soft white|lime"},
{"#levels", "low|medium|high|very low|very high|minimum|maximum|normal|extra"},
{"#priorities", "low|normal|high|urgent|critical|trivial|blocker|minor|major"},
{"#sizes", "small|medium|large|extra large|tiny|huge|half|full|double|family"},
{"#modes", "eco|boost|auto|manual|quiet|turbo|night|standby|vacation|dry|fan only|sleep|party|delicate|intensive|quick wash|steam"},
{"#languages", "Basque|Czech|Danish|Dutch|Estonian|Finnish|Greek|Hebrew|Hindi|Hungarian|Icelandic|Irish|Italian|Latvian|Portuguese|Romanian|Spanish|Tamil|Thai|Ukrainian|Welsh|Zulu"},
{"#money", "AUD|BRL|CAD|CNY|CZK|DKK|HUF|INR|ISK|KRW|MXN|NZD|RON|SEK|SGD|THB|TRY|ZAR"},
{"#weekdays", "mon|tue|wed|thu|fri|sat|sun"},
{"#months", "January|February|March|April|May|June|July|August|September|October|November|December"},
{"#drinks", "espresso|latte|flat white|green tea|black tea|cocoa|lemonade|mineral water|cider|ginger ale|iced coffee|chai|orange juice|tomato juice"},
{"#dishes", "margherita|lasagne|ramen|falafel|goulash|paella|fish pie|pad thai|risotto|burrito|dumplings|lentil soup|apple crumble|moussaka"},
{"#toppings", "olives|capers|onions|basil|extra cheese|mushrooms|peppers|anchovies|rocket|garlic|chilli|pineapple|sweetcorn|ham"},
{"#animals", "cat|dog|parrot|rabbit|hamster|tortoise|goat|pony|canary|gecko|guinea pig|duck|goldfish|ferret"},
{"#plants", "tomatoes|basil|roses|tulips|carrots|sweet peas|lavender|spinach|sunflowers|beans|courgettes|mint|kale|dahlias"},
{"#sports", "tennis|rowing|climbing|judo|badminton|table tennis|swimming|running|squash|ice hockey|archery|fencing|cycling|volleyball"},
{"#genres", "thriller|romance|science fiction|western|documentary|comedy|film noir|fantasy|biography|musical|crime|horror|travel"},
{"#transport", "bus|tram|ferry|bicycle|metro|taxi|train|on foot|car|cable car|scooter|night bus"},
{"#hazards", "motorways|gravel|bridges|tunnels|stairways|low bridges|one way streets|mud|steep hills|traffic lights|unpaved roads"},
{"#quantities", "blood pressure|temperature|steps|noise|co2|rainfall|wind speed|oxygen|voltage|soil moisture|cholesterol|sleep hours|body fat|ph"},
{"#units", "km|mile|metre|inch|gram|ounce|litre|gallon|pint|foot|yard|stone|acre|hectare|joule|calorie"},
{"#formats", "pdf|csv|png|xlsx|txt|jpeg|docx|mp3|flac|zip|html|svg|markdown"},
{"#states", "open|closed|pending|archived|draft|published|in review|on hold|done|blocked|cancelled|paid|overdue"},
{"#teams", "sales|support|design|finance|legal|logistics|research|human resources|security|marketing|field service|payroll"},
{"#channels", "email|sms|push|phone|letter|chat|fax|pager|voice mail|web"},
{"#instruments", "cello|flute|piano|harp|trumpet|drums|oboe|guitar|viola|bass guitar|clarinet|banjo|accordion"},
{"#materials", "oak|steel|glass|brass|granite|bamboo|cork|leather|wool|plywood|stainless steel|linen|concrete|copper"},
{"#shapes", "circle|square|triangle|hexagon|oval|star|rounded box|arrow|diamond|spiral|cross"},
{"#classes", "economy|business|first|premium economy|standard|deluxe|budget|suite|twin|single|family room|bunk"},
{"#sides", "left|right|front|rear|top|bottom|north|south|east|west|upper left|lower right"},
{"#frequency", "hourly|daily|weekly|monthly|yearly|every other day|never|on weekdays|once|twice a week"},
{"#exercises", "push ups|squats|plank|lunges|deadlift|burpees|rowing machine|bench press|sit ups|skipping"},
{"#subjects", "algebra|geometry|chemistry|biology|history|latin|physics|art history|geography|music theory|grammar|logic"},
{"#networks", "guest wifi|office lan|home mesh|garage link|lab net|camera vlan|backup line|public wifi"},
{"#devices", "printer|router|heat pump|dishwasher|vacuum|humidifier|camera|projector|coffee machine|freezer|speaker|sprinkler|air purifier|kettle"},
{"#open_close", "open|close|stop|half open|hold"},
{"#sun", "sunrise|sunset|dawn|dusk|noon|moonrise"},
{"#stages", "staging|production|test|preview|sandbox|nightly"},
{"#ops", "add|multiply|subtract|divide|average"},
{"#codecs", "base64|rot13|sha256|morse|md5|hex|braille|crc32"},
{"#rights", "read|write|admin|edit|delete|comment|execute"},
{"#fields", "birthday|address|phone number|job title|nickname|employer|home town"},
{"#buy_sell", "buy|sell|short|hedge"},
{"#garden_jobs", "prune|repot|harvest|mulch|sow|fertilise|weed|thin out|cut back"},
};
// clang-format on

std::vector<std::string> Split(std::string_view text) {
  const char separator = text.find('|') == std::string_view::npos ? ' ' : '|';
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (separator == '|' || end > begin) out.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::map<std::string, std::vector<std::string>, std::less<>> BuildLists() {
  std::map<std::string, std::vector<std::string>, std::less<>> lists;
  for (const List& list : kLists) lists[list.name] = Split(list.items);
  return lists;
}

}  // namespace

const std::vector<std::string>& Words(std::string_view list) {
  static const auto lists = BuildLists();
  const auto found = lists.find(list);
  assert(found != lists.end());
  return found->second;
}

const std::vector<std::string>& PoolNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const List& list : kLists)
      if (list.name[0] == '#') out.emplace_back(list.name);
    return out;
  }();
  return names;
}

}  // namespace needle::corpus
