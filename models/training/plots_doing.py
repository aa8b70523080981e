"""Plots about making, mending, growing, learning and racing.

The scripts are in the language of grammar.py: one line per beat, however long.
"""

BAKING = """
{opening}
? {opening_detail}

{When}, {A} wanted to make a {treat} for [{his} {M}|everybody|the whole village]. "[It will be a surprise|I can do it|It cannot be hard]," {he} {said}.
{He} took [a big bowl|the {colour} bowl] and put in [flour|sugar|butter|honey], [milk|water|eggs|nuts] and [a pinch of salt|{number} apples|some berries|a little lemon].
* But there was no more [sugar|honey|butter|milk]. "Oh no!" {said} {A}.
* But {A} put in too much salt. {He} tasted it and made a face.
* But the {treat} got burned, and black smoke filled the kitchen.
* But the bowl fell down, and everything was on the floor.
{A} was {sad}.

{meet_b} "[It smells funny here|What a mess|I came to see you]," {said} {B}. {A} told {bhim} what had happened.
{offer}
* They {walked} to {C} and asked for [help|sugar|some milk|{number} eggs]. {C} gave them all they needed. "[But save a piece for me|Cook it slowly this time|Do not forget the salt]!" {che} {said}.
* {B} ran home and came back with [a jar of honey|a bag of flour|fresh butter|a basket of eggs].
* {B} read the recipe {slowly}, and {A} did what it said.
They [stirred|mixed|worked] and [sang|laughed|waited]. {Later}, the kitchen smelled [wonderful|sweet|like heaven].

[The {treat} was ready!|And this time, the {treat} was perfect.|The new {treat} was golden and big.] {A} was {proud}. {His} {M} {came_in}. "{wow}! [Who made this?|This smells good!|What a surprise!]" {mhe} {cried}.
They all sat down and ate. [{C} came too.|Even a hungry {pet} got a piece.|There was not a crumb left.|]
"[It tastes better because you made it together|This is the best {treat} I ever had|You are a good cook]," {said} {his} {M}.
{thanks}
? {A} learned that [a mistake is not the end|it is good to ask for help|cooking is more fun with a friend].
{ending}
"""

REPAIR = """
{opening}
? {opening_detail}
{In_place}, there was [an old|a {look}|a beautiful] {broken}. Everybody in the village [liked|loved|needed] it.

{When}, [there was a big storm.|something terrible happened.|there was a loud crash.] {A} {walked} to {place} and saw that the {broken} was broken! [A piece was missing.|It lay on its side.|It was in {number} pieces.|One part of it was bent.] {A} was {sad}. "[Who will fix it?|I must fix it!|What can I do?]" {he} {said}.
{He} tried to fix it with [a rope|some glue|a nail|a ribbon|a piece of wood], but [it broke again|it did not hold|it fell down|that was not enough].

{meet_b} {ask_sad} "The {broken} is broken, and I cannot fix it alone," {said} {A}.
{offer}
? {ask_helper} "You need [a long nail|a new board|strong glue|a good hammer|a steady hand]," {said} {C}, and {che} gave it to them.
{A} held the [wood|pieces|parts], and {B} [tied the rope|hit the nail|turned the screw|put on the glue]. They worked [all {time}|for {number} hours|until the evening|without a break].
? {Later}, it began to rain, but they did not stop.
? Then they painted it {colour}.

At last, the {broken} was [like new|whole again|better than before]. {C} {smiled} and {said}, "[You did it|Good work|That is strong work for small hands]!" {A} felt {proud}. {thanks}
Everybody came to see it. [There was music and cake.|They gave {A} and {B} {gift}.|They clapped for {A} and {B}.|]
? {home_again}
[{A} learned that|And {A} knew now that] [broken things can be mended|work is easy with a friend|it is worth trying twice|patience helps more than anger].
{ending}
"""

GARDEN = """
{opening}
? {opening_detail}

{When}, {his} {M} gave {A} a small {colour} seed. "What will it be?" {asked} {A}. "[Wait and see|Plant it, and you will see|It needs water, sun and time]," {said} {his} {M}.
{A} [dug a hole|made a little bed of earth|found a sunny corner] {in_garden} and put the seed in. {He} gave it water every [morning|evening|day]. But nothing happened. {A} {waited_days}. Still nothing! {He} was {sad}.

{meet_b} "[My seed does not grow|It is only earth|I think my seed is asleep]," {said} {A}. 
* "You must be patient," {said} {B}. "Let us [sing to it|wait together|give it a little more sun]."
* "Maybe it is too dry," {said} {B}, and they brought [a bucket|{number} cups] of water from the well.
* {B} asked {C}. "Seeds sleep first," {said} {C}. "They wake up when it is warm."
[The next morning|After {number} days|One {weather} morning], {A} saw something [green|tiny and green] in the ground. "{wow}! It is growing!" {he} {cried}.

The plant grew and grew.
* But then [a {pet} wanted to eat it|the snails came]. So {A} and {B} built a small fence around it.
* But then [a storm came|it rained hard]. {A} held an umbrella over it [all day|until the evening].
* But then it was very hot. {A} put {his} own {look} hat over it to give it some shade.
* But then a {pet} came and wanted to eat it. {A} gave the {pet} a {fruit} instead, and the plant was safe.
* But then there was a cold night. {A} and {B} put [a blanket|some hay|a warm scarf] around it.
{Later}, there was a [big|huge|fine] {plant}! [It was the most beautiful {plant} in the village.|It was as tall as {A}.|Everybody came to see it.] {A} was {proud}.

"[Good things take time|You cared for it so well|A seed needs a friend]," {said} {his} {M}. {A} [gave some of it to|shared it with|showed it to] {B} and {C}.
? {thanks}
? And {A} kept {number} new seeds for the next spring.
{ending}
"""

LEARNING = """
{opening_alone}
? {detail_alone}
{A} wanted to learn to {skill}. {B}, a {b_kind}, could [do it well|already do it|do it better than anybody]. But {A} could not.

{When}, {A} {walked} to {place} and tried. [{He} tried once, and it went wrong.|It was harder than {he} thought.|{He} fell into the grass.|{He} tried {number} times.] [Some children laughed.|A {pet} looked at {him} and ran away.|] {A} was {sad}. "I will never learn to {skill}!" {he} {said}.
? {He} threw {his} {other} on the ground and sat down {spot}.

{Later}, {B} came to {him}. "[I could not do it at first either|I fell down many times too|Everybody starts small]," {bhe} {said}. "[I will show you|Watch me|Let us try it again, slowly]."
* {B} showed {him} how to begin. {A} watched {bhim} with wide eyes.
* First, they [took a deep breath|counted to {number}|closed their eyes]. Then {A} tried again.
* "Start with a small step," {said} {B}. So {A} took one small step, and then another.
Every day, they met {in_place}. [On the first day, it was hard.|{A} was often {tired}.|Sometimes {A} wanted to stop.] [On the second day, it was a little better.|But {B} always {smiled}.|But {he} did not give up.]

[After {number} days|One {weather} {time}|{Later}], it worked! {A} could {skill}! "{wow}! Look at me!" {he} {cried}. {B} {smiled}. {A} was {proud}.
{thanks}
? {His} {M} came to watch. "I knew that you could do it," {mhe} {said} and gave {him} {gift}.
? A few days later, {A} saw a small {pet} that wanted to learn something too. "Shall I show you?" {he} {asked}.
[{A} learned that|Now {he} knew that] [you need time to learn|nobody can do everything at once|you should never give up|a friend is the best teacher].
{ending}
"""

RACE = """
{opening_alone}
? {detail_alone}

= prize gift
Every [year|spring|summer|autumn], there was a big race from {place} to {place2}. The winner got {prize}. {A} wanted to win {much}. {He} [trained|ran|practised] every {daily}. {B}, a {b_kind}, wanted to win too. "I am [faster|quicker|better] than you," {said} {B}. "[We will see|Maybe|Wait and see]," {said} {A}.

{When}, the race began. "[One, two, three, go|Ready, steady, go]!" {cried} {C}. They ran [as fast as they could|like the wind|over the bridge and past the mill]. {B} was [first|in front|far ahead], and {A} was close behind.
Then {B} [fell over a root|slipped in the mud|hurt {bhis} foot|fell into a ditch]. "Ouch!" {bhe} {cried}. {A} {looked_at_goal}. {He} could win {prize} now! But {B} was {sad} and could not get up.

* But {A} stopped. "[Take my hand|Lean on me|I will help you]," {he} {said}.
* But {A} thought for a moment. Then {he} turned around and went back to {B}.
"[Go on, you can win|You will lose the race|Run, do not wait for me]," {said} {B}. "[A friend is more than a race|I do not want to win like this|We can go together]," {said} {A}.
Slowly, they walked on, step by step. [A {pet} won the race.|The others were long there.|Everybody else was faster.] But when they came to {place2}, [all the people clapped|everybody cheered|they heard a loud cheer].

Then {C} came to them. "[You did not win the race, but you won a friend|That was the best thing I saw today|You have a big heart]," {che} {said} and gave {A} {prize}.
{thanks_from_b}
? {home_again}
? The next year, they ran hand in hand, and {nobody_minded}.
{ending}
"""

EXTRA_CLASSES: dict[str, tuple[str, ...]] = {
    "came_in": (
        "came in",
        "came home",
        "opened the door",
        "looked through the window",
        "came into the kitchen",
    ),
    "in_garden": (
        "in the garden",
        "behind the house",
        "beside the wall",
        "near the gate",
        "next to the well",
    ),
    "waited_days": (
        "waited {number} days",
        "waited and waited",
        "looked at the ground every hour",
        "waited a whole week",
    ),
    "looked_at_goal": (
        "looked ahead",
        "saw the end of the race",
        "saw that the way was free",
        "ran past {bhim}",
    ),
    "nobody_minded": (
        "nobody minded",
        "they were first together",
        "they laughed all the way",
        "it did not matter who won",
    ),
    "thanks_from_b": (
        '"Thank you, {A}," {said} {B}. "I am sorry that I was [rude|so proud|unkind]."',
        '{B} {smiled}. "You are the real winner, {A}," {bhe} {said}.',
        '"You are a good friend," {said} {B} and shared {bhis} {fruit} with {him}.',
    ),
}

PLOTS = (BAKING, REPAIR, GARDEN, LEARNING, RACE)
