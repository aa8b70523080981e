"""What an application asks of its model. The expected answers are in golden/; `pytest --llm-update` writes them."""

import pytest


@pytest.mark.parametrize("beginning", ["Once upon a time", "It was raining and"])
def test_a_story_goes_on(llm_golden, beginning):
    answer = llm_golden(beginning, max_tokens=48)
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_reply_and_the_next_one(llm_golden):
    messages = [{"role": "user", "content": "Tell me of a fox."}]
    reply = llm_golden(messages, "first", max_tokens=32, temperature=0.8, seed=5)["choices"][0]["message"]
    llm_golden([*messages, reply, {"role": "user", "content": "And then?"}], "second", max_tokens=32, logits_hash=True)
