"""Words and names that the samples are made of, all of our own making."""

WORDS = """
able above across actor after again agent album alert alley almond amber anchor angle animal answer apple april apron arch
arena arrow artist aspect atlas august aunt author autumn avenue badge bag baker balcony ball bamboo banana band bank barn
basin basket bath beach beacon beam bean bear beard beaver bed bee belt bench berry bird birth bishop black blanket block
blossom blue board boat body bolt bone book boot border bottle bottom boulder bowl box brain branch brass bread breeze brick
bridge broom brother brown brush bucket budget bullet bundle burden butter button cabin cable cactus cake camel camera camp
canal candle cannon canoe canvas canyon captain caravan carbon card cargo carpet carrot castle cat cattle cave cedar cellar
cement center chain chair chalk chamber channel chapter cheese cherry chest chicken child chimney choir church cider cinema
circle circus city clay clerk cliff clock cloth cloud clover coach coal coast coat cobalt coconut coffee coin collar colony
color column comet common compass copper coral cord corn corner cotton cottage counter country cousin cover cow crab cradle
crane crater crayon cream creek cricket crown crystal cube cup curtain cushion cycle daisy dance danger dawn day deck deer
delta desert desk detail diamond dinner dirt dish distance doctor dog dollar dolphin donkey door dragon drawer dream dress
drum duck dust eagle ear earth east echo edge egg elbow element elephant elm ember empire engine entry envelope error event
evening eye fabric face factory fairy falcon family farm farmer father feather fence fern ferry field fig figure finger fire
fish flag flame flask flint floor flower flute fly fog folder food foot forest fork fossil fountain fox frame friend frog
frost fruit fuel funnel galaxy garden garlic gate gem giant ginger giraffe glacier glass globe glove goat gold goose grain
grape grass gravel gray green ground guard guitar gulf hall hammer hand harbor harp harvest hat hawk hazel head heart heat
hedge helmet hen hero hill hinge history holiday honey hook horn horse hotel hour house ice idea image index ink insect
iron island ivory ivy jacket jade jar jelly jewel job journey judge juice jungle kettle key king kitchen kite kitten knee
knife knight knot ladder lady lake lamb lamp land lantern laptop laser lawn lead leaf leather lemon lesson letter level lily
lime line lion liquid list lizard lobster lock log lunch machine magnet maple marble march market mask master match meadow
meal melon memory metal middle milk mill mine mint mirror mist model moment money monkey month moon morning moss mother
motor mountain mouse mouth music nail name napkin nation needle nest net nickel night noise north nose notebook novel number
nurse nut oak oasis ocean office oil olive onion opera orange orchard orbit order organ otter oven owl oyster paddle page
paint palace palm panda panel paper parcel parent park parrot party pasta path pattern peach peak peanut pear pearl pebble
pen pencil people pepper person piano picnic picture pigeon pillow pilot pine pipe pirate planet plant plate plum pocket poem
point pond pony porch port potato powder prince prison prize pumpkin puppet puzzle pyramid quarter queen question quiet quilt
rabbit radar radio railway rain ranch raven reason record reed reef ribbon rice ring river road robin robot rocket roof room
root rope rose ruby rug ruler saddle sail salad salmon salt sand sandal scale school science scissors scout screen screw sea
season seat secret seed shadow shark sheep shelf shell shepherd ship shirt shoe shore shovel signal silk silver singer sister
skirt sky sleeve slope smoke snail snake snow soap socket sofa soil soldier song soup south spade spark sparrow spider spoon
spring square stable stair star station steam steel stem stick stone storm story stove straw stream street string student
sugar summer sun sunset swan sweater table tailor talent tank target teacher temple tent theater thread throat thumb thunder
ticket tiger timber tin toast tobacco tomato tool tooth torch tower town toy track trail train treasure tree triangle trumpet
tulip tunnel turkey turtle uncle valley vase velvet vessel village vine violet violin voice volcano voyage wagon walnut water
wave wax weather week whale wheat wheel whistle willow window wing winter wire wolf wood wool word worker world yard yarn
year yellow zebra
""".split()

PEOPLE = """
Ada Alan Alice Amir Anna Arun Astrid Ben Bela Bo Carla Chen Clara Daniel Dora Edgar Elena Emil Emma Farid Felix Fiona Frank
Greta Hana Hans Hugo Ida Igor Ines Ivan Jana Jin Jonas Julia Kai Karim Karin Klaus Lara Lena Leo Lin Linus Lucia Maja Marco
Maria Mei Mia Milan Mira Nadia Nina Noah Nora Olga Omar Oscar Otto Paul Petra Priya Quinn Rafael Ravi Rita Robert Rosa Ruth
Sana Sara Selma Simon Sofia Sven Tariq Tessa Theo Tom Uma Ursula Vera Victor Wei Xenia Yara Yusuf Zoe
""".split()

CITIES = """
Accra Amman Ankara Athens Austin Bamako Basel Beirut Bergen Berlin Bern Bogota Bonn Boston Bremen Bristol Brno Brussels Cairo
Calgary Chicago Cologne Cordoba Cork Dakar Dallas Delhi Denver Dresden Dublin Essen Florence Geneva Ghent Graz Hamburg Hanoi
Havana Helsinki Istanbul Jakarta Kiel Kigali Krakow Kyoto Lagos Leeds Leipzig Lima Lisbon London Lund Lusaka Lyon Madrid
Malaga Manila Miami Milan Minsk Mumbai Munich Nairobi Naples Nice Oslo Ottawa Padua Paris Perth Porto Prague Quito Riga Rome
Seoul Seville Shanghai Sofia Split Sydney Tallinn Tokyo Toronto Trier Tunis Turin Utrecht Vienna Warsaw Zagreb Zurich
""".split()

ONSETS = "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl fr gl gr pl pr qu sh sl sm sn sp st str th tr tw".split()
VOWELS = "a e i o u a e i o u ai ea ee oa oo ou y ie".split()
CODAS = ["", "", "", "b", "ck", "d", "ft", "g", "l", "ll", "m", "n", "nd", "ng", "nk", "p", "r", "rd", "rn", "s", "sh", "sk", "st", "t", "th", "x", "ve", "le"]


def invented(rng, least, most):
    """A word of least to most letters that no dictionary has, or by chance one that it has."""
    while True:
        word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(rng.choice((1, 2, 2, 3))))
        if rng.random() < 0.1:
            word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(least, most)))
        if least <= len(word) <= most:
            return word
