"""The documentation: its pages, their sections, and what a search finds in them."""

import pytest

from usechat.documentation import Documentation, Passage, documentation

ZOO = (
    "# Zoo\n\nAnimals from everywhere.\n\n## Lions\n\nThey roar.\n\nThey sleep all day.\n\n## Tigers\n\n"
    "They are striped:\n\n```python\n# not a heading\ntiger.stripes\n```\n"
)
GNUS = "# Gnus\n\nThey eat grass.\n\n## Food\n\nMore grass.\n\n## Food\n\nHay.\n"


def places(query: str) -> list[str]:
    return [passage.section.id for passage in Documentation({"zoo.md": ZOO, "gnus.md": GNUS}).search(query)]


def test_a_page_is_cut_at_its_headings_and_a_comment_in_code_is_none() -> None:
    sections = Documentation({"zoo.md": ZOO}).sections
    assert [(section.id, section.name) for section in sections] == [
        ("zoo.md#zoo", "Zoo"),
        ("zoo.md#lions", "Zoo: Lions"),
        ("zoo.md#tigers", "Zoo: Tigers"),
    ]


def test_headings_of_the_same_name_are_numbered_as_on_the_page() -> None:
    assert [section.id for section in Documentation({"gnus.md": GNUS}).sections] == [
        "gnus.md#gnus",
        "gnus.md#food",
        "gnus.md#food-1",
    ]


@pytest.mark.parametrize(
    ("query", "section"),
    [
        ("sleep", "zoo.md#lions"),
        ("Who is sleeping?", "zoo.md#lions"),
        ("tigers", "zoo.md#tigers"),
        ("tiger.stripes", "zoo.md#tigers"),
        ("hay AND (food", "gnus.md#food-1"),
        ('what do "gnus" eat?', "gnus.md#gnus"),
    ],
    ids=["a word", "its other forms", "a heading", "a name with a dot", "no syntax of the index", "quotes"],
)
def test_the_best_passage_is_the_first(query: str, section: str) -> None:
    assert places(query)[0] == section


def test_a_passage_is_a_paragraph_with_the_code_that_follows_it() -> None:
    passages = Documentation({"zoo.md": ZOO}).search("striped tigers")
    assert [passage.text for passage in passages] == [
        "They are striped:\n\n```python\n# not a heading\ntiger.stripes\n```"
    ]


def test_of_each_section_only_the_best_passage_is_quoted() -> None:
    assert [passage.text for passage in Documentation({"zoo.md": ZOO}).search("lions sleep")] == ["They sleep all day."]


def test_a_passage_that_holds_half_of_the_words_or_fewer_is_not_quoted() -> None:
    assert places("striped giraffes") == []
    assert places("striped tigers and giraffes") == ["zoo.md#tigers"]


@pytest.mark.parametrize("query", ["", "what is it about?", "?!", '"', "giraffes", "NEAR(", "x" * 100_000])
def test_nothing_is_found_for_words_that_are_nowhere_or_mean_nothing(query: str) -> None:
    assert places(query) == []


def test_a_query_of_any_length_is_answered() -> None:
    assert places("sleep " + " ".join(f"sleep{number}" for number in range(10_000))) == []
    assert places("sleep " * 10_000) == ["zoo.md#lions"]


@pytest.mark.parametrize("lines", [1, 13, 14, 15, 40])
@pytest.mark.parametrize(("above", "line", "below"), [("```\n", "tiger({})", "\n```"), ("|a|\n|-|\n", "|{}|", "")])
def test_an_excerpt_ends_after_sixteen_lines_and_closes_its_code(above: str, line: str, below: str, lines: int) -> None:
    [section] = Documentation({"zoo.md": "# Zoo\n\nAnimals."}).sections
    text = above + "\n".join(line.format(number) for number in range(lines)) + below
    excerpt = Passage(section, text).excerpt
    assert excerpt.count("```") % 2 == 0
    assert (excerpt == text) is (len(text.splitlines()) <= 16)
    assert ("…" in excerpt) is (excerpt != text)
    assert excerpt.splitlines()[:16] == text.splitlines()[:16]


def test_an_excerpt_has_no_links_since_they_lead_from_its_page() -> None:
    [section] = Documentation({"zoo.md": "# Zoo\n\nAnimals."}).sections
    text = "See [lions](lions.md) and ![a tiger](tiger.png).\n\n```\n[a](b)\n```"
    assert Passage(section, text).excerpt == "See lions and .\n\n```\n[a](b)\n```"


def test_this_installation_has_the_guides_and_no_page_for_contributors() -> None:
    pages = documentation().pages
    assert {"README.md", "resume.md", "frameworks/langgraph.md"} <= set(pages)
    assert not {"CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"} & set(pages)


@pytest.mark.parametrize(
    ("query", "section"),
    [
        ("stop button", "resume.md#a-stop-button"),
        ("OpenTelemetry spans", "metrics.md#"),
        ("JSON Web Tokens", "auth.md#"),
    ],
)
def test_the_guides_are_found_by_their_own_words(query: str, section: str) -> None:
    assert documentation().search(query)[0].section.id.startswith(section)


@pytest.mark.parametrize("query", ["What is the capital of Mongolia?", "Recommend a recipe with lentils"])
def test_what_the_guides_do_not_say_is_not_found(query: str) -> None:
    assert documentation().search(query) == []
