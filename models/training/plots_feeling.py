"""Plots about wishes, sharing, honesty, fear, presents and weather.

The scripts are in the language of grammar.py: one line per beat, however long.
"""

WISH = """
{opening_alone}
? {detail_alone}
= wish wish_word
{A} had one big wish. {He} wanted to {wish}. {He} thought about it every {daily}.

{When_dry}, {A} {walked} to {place}. {sky}. There, {spot}, {he} found [an old {colour} bottle|a {pet} with {colour} ears|a tiny {colour} fairy|a well with clear water|a {colour} feather]. 
* A small voice said, "You may make one wish, {A}."
* "I can give you one wish," said a voice, "but [choose well|use it before the sun goes down|think before you speak]."
{A} opened {his} mouth to make {his} wish. But then {he} heard {sound}. It was {B}, a {b_kind}. {B} was {sad}.

"[What is wrong|Why are you crying|What happened], {B}?" {asked} {A}. 
* "My {M2} is ill, and nobody can help," {said} {B}.
* "The storm took our roof, and we are cold," {said} {B}.
* "I lost my {look} {other} in the river," {said} {B}.
* "I have no food for the winter," {said} {B}.
{A} thought [hard|for a long time] about {his} own wish to {wish}. [It was not easy.|{He} looked at the sky.|{His} heart was heavy.] Then {he} {said}, "I wish that [{B} will be happy again|{B} gets what {bhe} needs|everything will be well for {B}]."

There was [a flash of {colour} light|a warm wind|a sound like a bell], and [the wish came true|all was well again|{B} began to laugh]. {thanks_hero}
"[You gave away your wish|You are {good}|You have a good heart]," said the voice. "So you will get [one more|a gift] from me." And {later} [{his} own wish came true too: {he} could {wish}|{A} could really {wish}|there lay {gift} in the grass].
? {home_again}
? {A} learned that [giving makes you happy|a wish for a friend is the best wish|there is room for two in one wish].
{ending}
"""

SHARING = """
{opening_alone}
? {detail_alone}
= tlook tlook_word
{A} had a {tlook} {thing}. It was [new|very special|the best {thing} in the village]. {He} did not let anybody touch it. "It is mine!" {he} always said.

{When}, {A} took {his} {thing} to {place}. {B}, a {trait} {b_kind}, was there too. "[What a nice {tlook} {thing}|Your {tlook} {thing} is so pretty]," {said} {B}. "[May I play with it|Can we play together|May I hold it for a moment]?"
"No!" {said} {A}. "[It is only for me|You will break it|Get your own {thing}]." {B} was {sad} and went away.
{A} played alone. [But it was not much fun.|Soon {he} was bored.|{He} threw the {thing} up and caught it again.] {He} looked at {B}, who was [playing with the others|laughing with a {pet}|sitting {spot}|drawing in the sand].

* Then the {thing} fell into [the water|a deep hole|a bush with thorns], and {A} could not reach it. "Help!" {he} {cried}. {B} came at once, and with a long stick {bhe} got it out.
* Then {A} felt hungry, but {he} had no food. {B} saw it, broke {bhis} {fruit} in two and gave {him} one half.
* Then {A} thought of {his} {M}, who always said, "{saying}" 
{A} felt [ashamed|sorry|warm inside]. "I am sorry, {B}," {he} {said}. "[I was not kind|I should have shared|Let us play with my {thing} together]."

Then {B} {smiled}. They played with the {tlook} {thing} [all day|until the sun went down|in turns|for {number} hours]. [It was much more fun than before.|They made up a new game.|They laughed and laughed.] 
? {B} also had something to share. It was {gift}.
? {home_again}
"[I like it better when we share|A {thing} is only a {thing}, but a friend is a friend|Tomorrow you may take it home]," {said} {A}.
{ending}
"""

HONESTY = """
{opening}
? {opening_detail}
= tlook tlook_word
= vessel vessel_word
In the house there was a {tlook} {vessel} that {his} {M} loved {mmuch}. "[Please be careful with it|It was a gift from my mother|Do not play near it]," {mhe} always said.

{When}, {A} and {B} played in the house with a {thing}. [They ran around the table.|They laughed and jumped.|They threw it higher and higher.] Crash! [The {vessel} fell from the shelf.|The {vessel} was in {number} pieces.|There were pieces of the {vessel} all over the floor.] {A} was {scared}.
"[Oh dear|Your {M} will be angry|Oh no]," {said} {B}. "[We can hide the pieces|We can say that the {pet} did it|Nobody saw us]."

* They hid the pieces {hide_place}. But {A} could not eat, and {he} could not sleep.
* {A} took the pieces to {C}. "Can you mend it?" {he} {asked}. "Maybe," {said} {C}. "But first, you must tell the truth."
* {A} looked at the pieces. {His} stomach felt like a stone.
{A} thought and thought. Then {he} went to {his} {M}. "I [must|have to|want to] tell you something," {he} whispered. "I broke the {vessel}. I am [sorry|so sorry|very sorry]."

{His} {M} was [quiet for a moment|a little sad|surprised]. Then {mhe} took {him} in {mhis} arms. "[Thank you for telling me|I am glad that you told the truth|A thing can be mended, but a lie grows]," {mhe} {said}.
{Later}, {they_mended}. [One could see the cracks in the {vessel}, but it was still pretty.|It was not perfect, but {his} {M} loved it even more.|It held water again.] 
? {B} came and said sorry too.
? {home_again}
{A} felt [light|free|warm inside|{happy}]. {He} learned that [the truth is better than a lie|it takes courage to be honest|saying sorry makes the heart light].
{ending_alone}
"""

AFRAID_OF_DARK = """
{opening}
? {opening_detail}
But when the night came, {A} was {scared}. [{He} did not like the dark.|There were strange shadows on the wall.|{He} heard noises under the bed.|{He} pulled the blanket over {his} head.]

{When_night}, {A} heard {sound}. "{M_call}!" {he} {cried}. {His} {M} came with a [lantern|candle|small light]. "[What is it|Are you afraid|Can you not sleep], {A}?" {mhe} {asked}.
"There is something [at the window|under my bed|behind the door|in the corner]," {said} {A}.
{His} {M} took {his} hand. "[Let us look together|Let us be brave and see|Come, we will find out what it is]," {mhe} {said}.

Slowly, they walked [to it|across the room|closer], step by step. {His} heart beat fast. And what was it? 
* It was only a {pet} that was looking for a warm place to sleep.
* It was only the {look} {thing}, which had fallen from the shelf.
* It was only a branch that moved in the wind.
{A} {began_to_laugh}. "[That was not a monster|I was afraid of nothing|The dark is not so bad]," {he} {said}.

Then {his} {M} opened the window. "[Look up|Without the dark, we could not see this|Now look at the sky]," {mhe} {said}. There were [a thousand stars|many bright stars|stars everywhere], and the moon [was round and yellow|smiled at them|shone on {place}]. [An owl called.|It was quiet and beautiful.|A soft wind moved the trees.]
? "[One star is for you|Each star is a little lamp|The night takes care of us]," {said} {his} {M}.
? The next day, {A} told {B} about it. "[I am sometimes afraid too|I want to see the stars with you|You were brave]," {said} {B}.
After that, {A} was not afraid of the dark any more. {He} {slept_well}.
{ending_alone}
"""

PRESENT = """
{opening}
? {opening_detail}
It was nearly the birthday of {B}, {his} best friend. {A} wanted to give {bhim} a [nice|special|wonderful] present. But {he} had no money. "What can I do?" {he} {asked}.

{When}, {A} {walked} to {place}. {He} met {C}. "[I need a present for {B}|I have no money for a present|I want to give something to {B}]," {said} {A}. 
* "[Make something yourself|Use your hands|The best gifts are made with love]," {said} {C}.
* "If you help me to [clean my shop|carry these boxes|feed the hens|sweep the floor], I will give you something," {said} {C}.
= present gift
= flaw flaw_word
So {A} [worked hard|worked all day|sat down and began to work|got up early and worked]. [It was not easy.|{He} was {tired}, but {he} did not stop.|{His} fingers hurt.|It took {number} days.] In the end, {he} had {present}. {He} was {proud}. "[I have|Here is] {present} for {B}," {he} {said}.

On the way to the party, [it rained hard|the wind blew|{he} fell into a puddle|a goat came along], and the present got {flaw}. {A} was {sad}. "[Now it is not pretty any more|Now I have nothing nice to give|I wanted it to be perfect]," {he} {said}.
At the party, there were [many children|many guests|{number} guests] with big presents. {A} {slowly} put {his} present on the table.
{B} opened it. It was {present}! {Bhis} eyes [shone|grew big|filled with tears of joy]. "[It is the best present of all|You made this for me|I love it], {A}!" {bhe} {cried}.

"But it is {flaw}," {said} {A}. "[It comes from your heart|You worked so hard for it|I do not care about that]," {said} {B} and hugged {him}. [They ate {treat_piece} and danced.|They played games until the evening.|Then they all sang a birthday song.]
? {home_again}
? {A} learned that [a gift does not have to be big|love is the best gift|it matters who gives, not what it costs].
{ending}
"""

STORM = """
{opening}
? {opening_detail}

{When}, {A} and {B} were {in_place}. They wanted to [have a picnic|play with the {thing}|fly a kite|build a house of sticks]. But {later} the sky turned [grey|black|dark]. [Big drops of rain began to fall.|The wind grew strong.|There was thunder and lightning.|The rain beat on the ground.] "Our day is ruined," {said} {A}. {He} was {sad}.
"[We must find a dry place|Quick, let us run|Come with me]!" {cried} {B}. They ran and hid {spot}.

[There they were not alone.|Somebody was already there.] A {pet} sat there, wet and {scared}. "[Do not worry, little one|You can stay with us|Come here and get warm]," {said} {A}. They [shared a {fruit} with it|gave it a dry scarf|made room for it].
* "What can we do now?" {asked} {A}. "We can tell stories," {said} {B}. So {B} told a story about a {colour} {animal_word} who lived on the moon.
* They sang every song they knew. The rain on the leaves was like a drum.
* They played a game. "I see something that you do not see, and it is {colour}," {said} {B}.
* They counted the time from the lightning to the thunder. One, two, three, four, five. "The storm is going away," {said} {B}.
[{A} forgot the storm.|Soon {A} was laughing.|It was cosy and dry.] 

{Later}, the rain stopped. The sun came out, and there was a big rainbow over {place2}. "{wow}! [Look at the colours|How beautiful|I see red, yellow, green and blue]!" {cried} {A}. The {pet} {pet_joy}.
They [jumped in the puddles|walked through the wet grass|caught drops with their hands] and laughed. {met_relative}
"[Were you afraid of the storm|Were you frightened|Did the thunder scare you]?" {asked} {his} {M}. "[No|Only at first|A little]," {said} {A}. "[It was the best day|The rain made us a present|We had each other]."
? {home_again}
? {A} learned that [even a bad day can turn out well|after the rain comes the sun|you can have fun in any weather].
{ending}
"""

EXTRA_CLASSES: dict[str, tuple[str, ...]] = {
    "wish_word": (
        "see the sea",
        "fly like a bird",
        "touch a star",
        "hear the king's music",
        "ride on a white horse",
        "talk with the animals",
    ),
    "flaw_word": ("wet", "dirty", "bent"),
    "M2": ("mother", "father", "grandmother", "little brother", "little sister"),
    "M_call": ("Help", "Please come", "Come here", "Come quickly"),
    "When_night": (
        "One night",
        "One dark night",
        "One windy night",
        "That night",
        "One night in winter",
    ),
    "mmuch": ("very much", "so much", "more than anything"),
    "hide_place": (
        "under the bed",
        "behind the shelf",
        "in a box",
        "in the garden",
        "under a {look} blanket",
    ),
    "they_mended": (
        "they mended it together",
        "they glued the pieces together",
        "{A} and {B} mended it with glue",
    ),
    "began_to_laugh": (
        "began to laugh",
        "{smiled}",
        "had to laugh",
        "took a deep breath and laughed",
    ),
    "slept_well": (
        "slept well every night",
        "liked the night now",
        "said good night to the stars",
        "even liked the shadows",
    ),
    "vessel_word": ("vase", "cup", "plate", "bowl", "teapot", "jar"),
    "treat_piece": ("{treat_word} with honey", "{treat_word} and drank milk", "a big {treat_word}"),
    "treat_word": ("cake", "apple pie", "berry pie", "honey cake"),
    "pet_joy": (
        "jumped for joy",
        "ran out into the grass",
        "shook its wet coat",
        "looked at it for a long time",
    ),
    "met_relative": (
        "Then {his} {M} came down the path.",
        "{His} {M} came with [a big umbrella|dry socks|a warm blanket].",
        "When they came home, {his} {M} stood at the door.",
    ),
    "thanks_hero": (
        '"Thank you, {A}!" {cried} {B}. "I will never forget this."',
        '{B} hugged {him}. "You are a true friend," {bhe} {said}.',
        '"How can I thank you?" {asked} {B}. "[Be my friend|You do not have to|Just smile]," {said} {A}.',
    ),
}

PLOTS = (WISH, SHARING, HONESTY, AFRAID_OF_DARK, PRESENT, STORM)
