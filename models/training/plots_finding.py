"""Plots about things and friends that are lost, found, met or saved.

The scripts are in the language of grammar.py: one line per beat, however long.
"""

LOST_OBJECT = """
{opening}
? {opening_detail}
= tlook tlook_word
{A} had a {tlook} {thing}. [It was a gift from {his} {M}.|{He} had made it [alone|with {his} {M}|last winter].|{He} had found it {in_place2}.|] {He} [loved it {much}|took it everywhere|never went out without it|played with it every day].

{When}, {A} {walked} to {place} [to play|with {his} {thing}|to meet {B}|].
* But when {he} [got there|sat down|wanted to go home], the {tlook} {thing} was gone!
* {He} put the {thing} down [for a moment|on the grass] to look at [a butterfly|a {colour} bird|the clouds|a snail]. When {he} turned around, the {tlook} {thing} was gone!
* A strong wind came, and [{later}|all at once] the {thing} was gone.
{A} {looked} {spot2_or_near}, but it was not there. [{He} felt {sad}.|{He} was {sad}.|{His} eyes filled with tears.]

{meet_b} {ask_sad}
"I lost my {tlook} {thing}," {said} {A}. "[It is gone|I have looked everywhere|I cannot find it|It was my favourite {thing}]."
{offer}

First, they {looked} {in_place2}. They {looked} {spot2}, but they [only found a {colour} {other}|only found an old shoe|only found {number} stones|only saw a sleeping cat|only found a {fruit}|found nothing at all].
? {ask_helper} "[Have you seen|Did you see] a {tlook} {thing}?" {asked} {A}. "[Yes! I saw it|I think I saw something {colour}|Maybe you should look] {in_place}," {said} {C}.
Then they went back to {place}. {B} {looked} {spot}. "{wow}! [I see something|Come here|I found it], {A}!" {bhe} {cried}.

[There it was, {spot}!|The {thing} was {spot}!|And there, {spot}, was the {tlook} {thing}!] {A} was {happy}. {thanks}
? {home_again}
? After that day, {A} [always took good care of|never lost|was very careful with] {his} {thing}.
{ending}
"""

SCARED_ANIMAL = """
{opening}
? {opening_detail}

= days number
{When_dry}, {A} was {in_place}. {sky}. {Later}, {he} heard {sound}. It came from [nearby|somewhere close|behind {him}]. {A} {looked} around. [There, {spot}, sat a {pet}.|{He} {looked} {spot} and saw a small {pet}.]
The {pet} was {scared}. [It was shaking.|Its leg was hurt.|It was wet and cold.|It was all alone.|It had lost its mother.]

"Do not be afraid," {A} {said}. "[I will not hurt you|I am your friend|I only want to help]." [But the {pet} hid its face.|But the {pet} did not move.|The {pet} looked at {him} with big eyes.]
* {A} sat down and waited {slowly_wait}.
* {A} took a {fruit} out of {his} bag and put it on the ground.
* {A} sang a soft song.
* {A} {slowly} held out {his} hand.
{Later}, the {pet} came [a little closer|out, step by step|near and sniffed {his} fingers].

{meet_b} "[Look|Quiet|Come here], {B}," {A} whispered. "The {pet} is {scared}. What can we do?"
* "It needs a warm place," {said} {B}. {Bhe} [took off {bhis} scarf|brought a blanket|filled a basket with hay], and they put the {pet} in it.
* "Maybe it is hungry," {said} {B}. They gave it [some milk|a bit of bread|a {fruit}|water from the stream], and it ate everything.
* "Let us take it to {C}," {said} {B}. {C} looked at the {pet} and {smiled}. "It will be well in {days} days," {che} said.
? All night long, {A} stayed beside the {pet}.
After {days} days, the {pet} was [strong again|well again|no longer afraid].

* {Later}, its mother came out of the bushes. The {pet} {ran_to_her}. {A} was a little sad, but also happy.
* They carried it back to {place}. The {pet} looked back once, and then it ran [into the bushes|home|over the grass].
* The {pet} did not want to leave. So it stayed with {A}, and {he} named it {pet_name}.
"[You did a good thing|You were very {good}|I am proud of you]," {said} {his} {M}.
? {home_again}
[{A} learned that|Now {A} knew that] [it is good to be patient|even a small hand can help|being gentle is a kind of strength|everybody is afraid sometimes].
{ending}
"""

NEW_FRIEND = """
{opening_alone}
? {detail_alone}
But {A} [had no friends|was lonely|had nobody to play with|was new in the village]. [{He} felt {sad}.|{He} played alone every day.|{He} only talked to {his} {other}.]

{When}, {A} {walked} to {place}. There {he} saw a {b_kind} who was [sitting alone|playing with a {look} {thing}|drawing in the sand|looking at the sky|building a tower of stones]. {A} wanted to say hello, but {he} was {scared}.
? "What if {bhe} does not like me?" {he} thought.
{A} took a deep breath. "Hello," {he} {said}. "My name is {A}. [What is your name|Who are you|May I play with you|What are you doing]?"

* "I am {B}," {said} the {b_kind}. "[I am new here|I came here yesterday|I have nobody to play with]."
* The {b_kind} looked up and {smiled}. "My name is {B}. [Do you want to play|Come and sit with me|I am glad to meet you]!"
* At first, the {b_kind} said nothing. Then {bhe} whispered, "I am {B}. [I am shy|I was afraid to talk to you]."
"[I was afraid too|Let us play together|Then we can be friends]," {said} {A}.
[{A} had a {fruit} in {his} bag, and they shared it.|{A} showed {bhim} {his} {look} {other}.|They played with a {thing} [all day|until the evening].|They ran and laughed.]

{Later}, [it began to rain|the wind blew hard|a big dog came]. [They hid {spot}.|They ran and hid {spot} together.] "[This is fun|I am not afraid when you are here|Now we have a secret place]," {said} {B}.
? {home_again}
"[Will you come back tomorrow|Can we play again tomorrow|Shall we meet here tomorrow]?" {asked} {B}. "[Yes|Of course|Every day]!" {said} {A}.

Then {A} ran home. "{wow}!" {he} {cried}. "I have a friend!" {His} {M} {smiled}. "[One hello can change a day|I knew you could do it|You were {good}]," {mhe} {said}.
{ending}
"""

TREASURE_MAP = """
{opening}
? {opening_detail}

{When}, {A} found [an old map|a letter|a piece of paper with a drawing] [in a dusty box|inside a book|under {his} bed|in a bottle]. It showed {place} and a big {colour} cross. "{wow}! A treasure!" {cried} {A}. {He} {walked} to {his} friend {B} and showed {bhim} the map.
"[Let us find it|We must go at once|I wonder what it is]!" {said} {B}. They took [a rope|a lantern|a small shovel|a bag], {number} [apples|sandwiches|cookies] and went on their way.

First, they came to {place2}. [The path was steep.|The path was full of mud.|The wind was strong.|It was dark there.] "I am {scared}," {said} {B}. "[Take my hand|We are nearly there|Do not look down]," {said} {A}.
? {Later}, they heard {sound}. It was only a {pet}, and they laughed.
? {ask_helper} "[Go straight on|Turn left at the big stone|Follow the stream]," {said} {C} and pointed to {place}.
{Later}, they {stood_in} {place}. "The cross must be {spot}," {said} {A}. They dug and dug.

"{wow}! [I hit something|Here is something hard|I see a box]!" {cried} {B}. It was a {look} box. Slowly, {A} opened it.
* Inside was {gift} and a letter. It said, "[The real treasure is a good friend|You were brave to come here|Share this with somebody you love]."
* Inside were {number} old coins, {gift} and a picture of {his} own {M}. {He} was {surprised}.
* Inside was only {gift}. {B} was a little sad, but {A} {smiled}. "We had a great adventure," {he} {said}.
"[Half for you and half for me|We found it together, so we will share it|Let us put something in for the next one who comes]," {said} {A}.

? {home_again}
{ending}
"""

LOST_WAY = """
{opening_alone}
? {detail_alone}

{When}, {A} went to {place} to [pick berries|find wood|look for mushrooms|fly {his} kite|see the birds]. {His} {M} {said}, "Do not go too far." But {A} saw [a {colour} butterfly|a {pet}|a {colour} bird|a shining light] and followed it, [on and on|further and further|over {number} hills]. 
{Later}, {he} stopped. [Everything looked different.|{He} did not know the way home.|There was no path.] [It was getting dark|Fog came up|It began to rain], and {A} was {scared}.

{He} sat down {spot} and began to cry. Then {he} heard {sound}. "Who is there?" {he} {asked}.
"I am {B}," said a {b_kind}. "[Why are you crying|Are you lost|Where do you live]?"
"[I cannot find my way home|I am lost|I want to go home to my {M}]," {said} {A}. 
{offer}

* They climbed a tall tree and looked around. Far away, they saw a small light. "That is my home!" {cried} {A}.
* {B} knew every path. They followed the stream until they came to {place2}.
* They followed the marks that {his} own feet had made in the [mud|sand|wet grass].
* They asked an old owl. "Follow the bright star," said the owl, "and you will come to {place2}."
? On the way, they [shared a {fruit}|sang songs|held hands|told each other stories], and {A} was not afraid any more.

[{Later}, {A} saw {his} home.|At last, they came to the door.] {His} {M} {ran_out} and hugged {him}. "[I was so worried!|Where have you been?|There you are!]" {mhe} {cried}. "[I am sorry|I went too far|I will listen to you next time]," {said} {A}. "{B} helped me."
{His} {M} gave {B} {gift}. {thanks}
? {A} learned to [listen|stay on the path|be careful] when {he} was far from home.
{ending}
"""

EXTRA_CLASSES: dict[str, tuple[str, ...]] = {
    "spot2_or_near": (
        "everywhere",
        "all around",
        "here and there",
        "under every bush",
        "up and down",
        "behind every stone",
    ),
    "slowly_wait": (
        "for a long time",
        "without a sound",
        "and did not move",
        "and hummed a little song",
    ),
    "ran_to_her": (
        "ran to her",
        "jumped with joy",
        "pressed close to her",
        "gave a happy little cry",
    ),
    "ran_out": ("ran out", "came running", "opened the door", "dropped {mhis} basket"),
    "stood_in": ("came to", "were standing at the edge of", "reached", "saw"),
    "surprised": ("surprised", "very surprised", "too surprised to speak"),
    "pet_name": ("Lucky", "Star", "Cloud", "Shadow", "Feather", "Berry", "Puddle", "Friend"),
}

PLOTS = (LOST_OBJECT, SCARED_ANIMAL, NEW_FRIEND, TREASURE_MAP, LOST_WAY)
