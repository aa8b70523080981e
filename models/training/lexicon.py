"""The words of the stories: word classes for grammar.Grammar, and the raw material for cast.py."""


def _words(text: str) -> tuple[str, ...]:
    """Splits a list at its commas; line breaks do not matter."""
    return tuple(word.strip() for word in text.replace("\n", " ").split(",") if word.strip())


GIRLS = _words(
    "Lily, Mia, Anna, Rosa, Clara, Nina, Ella, Daisy, Ruby, Molly, Lucy, Zoe, Ivy, Hazel, Nora, "
    "Tess, Amy, Poppy, Maya, Sara, Kate, Jenny, Alma, Wendy, Bella, Dora, Emma, Grace, June, Lena"
)
BOYS = _words(
    "Tom, Ben, Max, Sam, Leo, Jack, Tim, Finn, Noah, Oscar, Peter, Hugo, Adam, Billy, Charlie, "
    "Dan, Felix, George, Henry, Ian, Jake, Kai, Luke, Milo, Nick, Otto, Paul, Rory, Simon, Theo"
)
ANIMAL_NAMES = _words(
    "Pip, Bramble, Fudge, Pepper, Clover, Dusty, Muffin, Nibbles, Pebble, Rusty, Scout, Snowy, "
    "Tumble, Whiskers, Ginger, Hopper, Acorn, Cocoa, Fern, Maple, Misty, Olive, Peanut, Willow"
)
FOREST_ANIMALS = _words(
    "rabbit, squirrel, hedgehog, fox, mouse, badger, bear cub, deer, mole, owl, frog, otter, "
    "beaver, raccoon"
)
FARM_ANIMALS = _words(
    "lamb, piglet, duckling, pony, kitten, puppy, calf, goat, chick, goose, donkey, mouse"
)
SMALL_ANIMALS = _words(
    "kitten, puppy, bird, duckling, rabbit, hedgehog, squirrel, mouse, lamb, turtle, fox cub, "
    "owl, frog"
)

TOYS = _words(
    "ball, kite, doll, drum, toy boat, toy train, toy car, top, hat, scarf, whistle, spoon, bell,"
    " button, bucket, umbrella, basket, flute, teddy bear, lantern, mitten, marble, ring, pencil,"
    " book, boot, wagon, cup"
)
BREAKABLE = _words(
    "cart, rowing boat, bench, bridge, swing, wagon, fence, bird house, gate, ladder, sled, "
    "water wheel"
)
TREATS = _words(
    "cake, apple pie, loaf of bread, pancake, honey cake, berry pie, carrot cake, pot of soup, "
    "plum tart, batch of cookies, pot of jam, lemon cake, pumpkin pie, nut bread, bowl of "
    "pudding, cherry pie"
)
PLANTS = _words(
    "sunflower, pumpkin, carrot, rose, apple tree, bean, tomato, tulip, melon, strawberry, cherry"
    " tree, pea, lemon tree, daisy, turnip, cabbage"
)
SKILLS = _words(
    "swim, sing, ride a bicycle, dance, whistle, climb the tall tree, paint, play the flute, "
    "read, skate, tie a knot, play the drum, jump over the stream, fly a kite, row a boat, build "
    "a tower"
)

PLACES = {
    # name: (preposition, hiding spots)
    "the park": (
        "in",
        ("under a bench", "behind the big oak tree", "beside the fountain", "in the long grass"),
    ),
    "the garden": (
        "in",
        ("under a rose bush", "behind the shed", "between the cabbages", "beside the gate"),
    ),
    "the beach": (
        "on",
        ("behind a rock", "under an old boat", "in a pile of seaweed", "beside a sand castle"),
    ),
    "the forest": (
        "in",
        ("under a pile of leaves", "inside a hollow log", "between two roots", "in a bush"),
    ),
    "the market": (
        "at",
        ("under a fruit cart", "behind a stack of boxes", "beside the well", "in an empty basket"),
    ),
    "the meadow": (
        "in",
        ("in the tall grass", "beside a flat stone", "under the yellow flowers", "near a fence"),
    ),
    "the river": (
        "by",
        ("among the reeds", "under the small bridge", "between two stones", "on a muddy bank"),
    ),
    "the farm": (
        "on",
        ("in the hay", "behind the barn", "under the old cart", "beside the hen house"),
    ),
    "the hill": (
        "on",
        ("under a bush", "behind a grey stone", "in a rabbit hole", "beside the path"),
    ),
    "the lake": (
        "by",
        ("under the dock", "in an old boat", "among the water lilies", "on the sandy shore"),
    ),
    "the school yard": (
        "in",
        ("under the slide", "behind the swing", "beside the wall", "in the sand box"),
    ),
    "the orchard": (
        "in",
        ("under an apple tree", "in a wooden crate", "behind a ladder", "among the fallen leaves"),
    ),
}

HELPERS = (
    # noun phrase, pronouns
    ("the baker", "he"), ("the old fisherman", "he"), ("the farmer", "he"), ("the teacher", "she"),
    ("the gardener", "she"), ("the postman", "he"), ("the doctor", "she"),
    ("the shopkeeper", "she"), ("the blacksmith", "he"), ("the old shepherd", "he"), ("the librarian", "she"),
    ("the wise old woman", "she"),
)  # fmt: skip

FAMILY = (
    ("mother", "she"), ("father", "he"), ("grandmother", "she"), ("grandfather", "he"),
    ("aunt", "she"), ("uncle", "he"), ("big sister", "she"), ("big brother", "he"),
)  # fmt: skip

CLASSES: dict[str, tuple[str, ...]] = {
    "colour": _words(
        "red, blue, green, yellow, orange, purple, pink, white, brown, golden, silver, black, "
        "grey, bright red, dark blue, light green"
    ),
    "size": _words("little, big, small, tiny, huge, long, round, large"),
    "look": _words(
        "{colour}, {colour}, {colour}, {size} {colour}, shiny {colour}, old {colour}, pretty "
        "{colour}, soft {colour}, shiny, wooden, new {colour}, little {colour}"
    ),
    "trait": _words(
        "kind, brave, curious, shy, cheerful, clever, gentle, quiet, funny, busy, careful, proud,"
        " friendly, playful, patient, stubborn, dreamy, helpful"
    ),
    "good": _words("kind, brave, clever, gentle, patient, helpful, good, wonderful"),
    "happy": _words(
        "happy, glad, cheerful, full of joy, very happy, so happy, delighted, pleased, as happy "
        "as could be"
    ),
    "sad": _words(
        "sad, upset, very sad, unhappy, ready to cry, so sad, worried, full of sorrow, gloomy"
    ),
    "scared": _words("scared, afraid, frightened, nervous, very scared, a little afraid"),
    "tired": _words("tired, sleepy, very tired, worn out, hungry and tired"),
    "proud": _words("proud, very proud, happy and proud, so proud"),
    "said": _words("said"),
    "asked": _words("asked"),
    "cried": _words("cried, shouted, called"),
    "walked": _words("walked, ran, hurried, went, skipped, wandered, marched"),
    "looked": _words("looked, searched, hunted"),
    "slowly": _words("slowly, carefully, quietly, gently, softly, bravely, quickly, patiently"),
    "fruit": _words(
        "apple, pear, plum, peach, orange, banana, cherry, carrot, cookie, bun, nut, sandwich, "
        "piece of cheese"
    ),
    "weather": _words(
        "sunny, warm, windy, cloudy, bright, cold, foggy, fine, frosty, quiet, rainy"
    ),
    "time": _words("morning, afternoon, day, evening, Monday, Sunday, Saturday"),
    "when": _words(
        "one {weather} {time}, one {time}, one day, early one morning, one day after breakfast, "
        "one {weather} day, on a {weather} {time}"
    ),
    "when_dry": _words("one day, early one morning, one day after breakfast, one Sunday"),
    "later": _words(
        "after a while, soon, a little later, before long, after some time, at last, then, a "
        "moment later, by noon, just then"
    ),
    "much": _words(
        "so much, very much, more than anything, with all {his} heart, more than any other thing"
    ),
    "number": _words("two, three, four, five, six, seven"),
    "wow": _words("Oh, Wow, Hooray, Oh my, Goodness"),
    "smiled": _words(
        "smiled, laughed, nodded, grinned, clapped, gave a big smile, smiled from ear to ear, "
        "jumped up and down"
    ),
    "sound": _words(
        "a soft cry, a strange noise, a small voice, a rustle, a squeak, a sad little sound, a "
        "splash, a thump"
    ),
    "hug": _words(
        "gave {bhim} a hug, hugged {bhim}, held {bhim} tight, squeezed {bhis} hand, patted {bhim}"
        " on the back"
    ),
    # Bound words that a story names again much later are short: they are copied more surely.
    "tlook_word": _words(
        "red, blue, green, yellow, orange, purple, pink, white, brown, golden, black, wooden, shiny"
    ),
    "gift": _words(
        "a red ribbon, a round stone, a warm scarf, a jar of honey, a little drum, a funny "
        "drawing, a basket of plums, a basket of nuts, a paper star, a warm hat, a bunch of "
        "flowers, a silver bell, a wooden boat, a golden cup"
    ),
    "animal_word": _words(
        "cat, dog, horse, bird, fish, bear, fox, rabbit, cow, duck, lion, whale, owl, snail"
    ),
    "sky": _words(
        "The sun was [shining|warm], The birds were singing, The "
        "sky was [blue|grey|clear|pink], A soft wind [blew|was blowing], The grass was "
        "[green|soft], White clouds moved across the sky, The air smelled of "
        "[flowers|fresh bread|grass], Bees hummed in the flowers"
    ),
    "home": _words(
        "in a [small|little|cosy|tidy|narrow] house [by the sea|near the forest|on a hill|at the "
        "edge of the village|by the river|next to the mill|with a {colour} door|with a {colour} "
        "roof], in a [quiet|busy|little|friendly|sleepy] [village|town|valley], on a farm [by the"
        " lake|near the hills|with many animals], in an old [mill|lighthouse|cottage|tower] [by "
        "the water|on the hill|near the woods]"
    ),
    "den": _words(
        "in a [cosy|little|warm|dry|hidden] [burrow|den|nest] [under an old oak tree|by the "
        "river|near the meadow|at the edge of the forest|beside a mossy stone|behind the mill], "
        "in a hollow [log|tree] [in the forest|by the lake|on the hill|near a stream]"
    ),
}
