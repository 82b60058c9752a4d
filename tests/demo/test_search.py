"""The search: the section that answers a question is the first, mostly.

Each set of sixty questions was measured once before anything was changed for it. That first figure rose with what was
learned from the sets before: 41, 29, 43, 45, 48, 40 and 46 of 60. The goal is 51 (85 %); it is not reached.
"""

import pytest

from tests.demo.questions import TUNED, UNSEEN, Questions
from usechat.demo.library import Library, Vocabulary, library, read_vocabulary

NO_WORDS = Vocabulary({}, {})


def missed(questions: Questions) -> dict[str, list[str]]:
    """The questions whose first section is not one that answers, and what was found instead."""
    found = {question: [section.id for section in library().search(question).sections] for question in questions}
    return {question: ids for question, ids in found.items() if not ids or not answers(ids[0], questions[question])}


def answers(name: str, right: tuple[str, ...]) -> bool:
    """Whether a section is one of those that answer, also after it moved to another page."""
    return name.startswith(right) or name in map(library().place_of, right)


def test_most_unseen_questions_show_the_right_section_first() -> None:
    """46 of 60 did. The documentation changes, so a few less are allowed."""
    wrong = missed(UNSEEN)
    assert len(wrong) <= 0.3 * len(UNSEEN), wrong


def test_nearly_all_known_questions_show_the_right_section_first() -> None:
    wrong = missed(TUNED)
    assert len(wrong) <= 0.1 * len(TUNED), wrong


@pytest.mark.parametrize(
    "question",
    ["What is the capital of Mongolia?", "Who won the football match yesterday?", "Recommend a recipe with lentils"],
)
def test_a_question_about_something_else_finds_nothing(question: str) -> None:
    assert library().search(question).sections == []


def test_what_comes_nearest_is_named_when_nothing_answers() -> None:
    text = "# Zoo\n\nAnimals.\n\n## Lions\n\nThey roar.\n\n## Tigers\n\nThey are striped.\n"
    found = Library({"zoo.md": text}, NO_WORDS).search("a recipe for lentils with pepper, salt and tigers")
    assert (found.sections, [section.name for section in found.nearest]) == ([], ["Zoo: Tigers"])


def test_the_words_of_the_vocabulary_belong_to_sections() -> None:
    unknown = [name for name in read_vocabulary().keywords if not library().place_of(name)]
    assert unknown == [], "rename or remove these keys of vocabulary.toml"


def test_a_section_is_found_by_its_heading_before_others_that_use_the_word() -> None:
    text = "# Zoo\n\nAnimals.\n\n## Lions\n\nThey roar.\n\n## Tigers\n\nA lion is no tiger. Lions, lions, lions.\n"
    found = Library({"zoo.md": text}, NO_WORDS).search("lions")
    assert [section.id for section in found.sections] == ["zoo.md#lions", "zoo.md#tigers"]


def test_a_synonym_is_found_and_the_word_itself_is_better() -> None:
    text = "# Stop\n\n## One\n\nPress cancel.\n\n## Two\n\nPress stop.\n"
    words = Vocabulary({"stop": ("cancel",)}, {})
    found = Library({"chat.md": text}, words).search("stop")
    assert [section.heading for section in found.sections] == ["Two", "One"]


def test_code_belongs_to_its_section_and_a_comment_in_it_is_no_heading() -> None:
    text = "# Zebra\n\n## Serve\n\n```python\n# not a heading\nserve(zebra)\n```\n\n## Other\n\nNothing.\n"
    found = Library({"chat.md": text}, NO_WORDS).search("zebra")
    assert found.sections[0].id == "chat.md#serve"
