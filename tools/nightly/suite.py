"""The test that run.py makes of each model and check."""

from nightly.run import judge


def test_check(result_of):
    judge(result_of)
