import pytest


@pytest.fixture(scope="session")
def llm_model_options():
    return {"chat_template": "zephyr"}  # this model's file has none
