"""Transcripts: what players text, and what each of them hears."""

import pytest

from apps.rps import words
from tests.apps.rps.carrier import table
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_a_nickname_is_claimed_and_shown_as_it_was_typed() -> None:
    async with table() as game:
        assert await game.play("Ann: nick Ann") == {"Ann": [words.welcome("Ann")]}
        assert await game.play("Bob: n bOB_2") == {"Bob": [words.welcome("bOB_2")]}
        assert await game.play("Ann: throw r BOB_2") == {
            "Ann": [words.you_wait("rock", "bOB_2")],
            "Bob": [words.they_wait("Ann")],
        }


@virtual
async def test_each_reason_to_refuse_a_nickname_has_its_own_reply() -> None:
    async with table("Ann") as game:
        heard = [
            await game.play("Bob: nick"),
            await game.play("Bob: nick Bob+1"),
            await game.play("Bob: nick Bob the builder"),
            await game.play("Bob: nick " + "b" * 33),
            await game.play("Bob: nick aNN"),
            await game.play("Ann: nick Anna"),
        ]
        malformed = {"Bob": [words.NICK_MALFORMED]}
        assert heard == [
            {"Bob": [words.NICK_MISSING]},
            *[malformed] * 3,
            {"Bob": [words.nick_taken("aNN")]},
            {"Ann": [words.has_nick("Ann")]},
        ]
        assert await game.play("Bob: nick " + "b" * 32) == {"Bob": [words.welcome("b" * 32)]}


@virtual
async def test_nicknames_are_the_same_without_regard_to_case_in_any_script() -> None:
    async with table() as game:
        await game.play("Ann: nick Straße")
        assert await game.play("Bob: nick STRASSE") == {"Bob": [words.nick_taken("STRASSE")]}
        await game.play("Bob: nick E\N{COMBINING ACUTE ACCENT}va")
        taken = words.nick_taken("\N{LATIN SMALL LETTER E WITH ACUTE}VA")
        assert await game.play("Cid: nick \N{LATIN SMALL LETTER E WITH ACUTE}VA") == {
            "Cid": [taken]
        }


@virtual
async def test_players_have_nicknames_in_their_own_script() -> None:
    async with table() as game:
        await game.play(
            "Ann: nick \u0905\u0928\u094d\u0928\u093e",
            "Bob: nick \u0e17\u0e35\u0e48\u0e23\u0e31\u0e01",
        )
        heard = await game.play("Ann: throw rock \u0e17\u0e35\u0e48\u0e23\u0e31\u0e01")
        assert heard["Bob"] == [words.they_wait("\u0905\u0928\u094d\u0928\u093e")]
        heard = await game.play("Bob: throw rock \u0905\u0928\u094d\u0928\u093e")
        assert heard["Ann"] == [words.tie("rock", "\u0e17\u0e35\u0e48\u0e23\u0e31\u0e01")]


@virtual
async def test_no_invisible_character_makes_another_nickname() -> None:
    async with table("Ann") as game:
        for nick in (
            "A\u200bnn",
            "\u2060Ann\ufe0f",
            "\uff21\uff4e\uff4e",
            "An\u00adn",
            "Ann\u3164",
        ):
            assert await game.play(f"Bob: nick {nick}") == {"Bob": [words.nick_taken("Ann")]}


@pytest.mark.parametrize("word", ["throw", "t", "play", "p", "THROW", "tHrOw"])
@virtual
async def test_two_throws_are_a_game(word: str) -> None:
    async with table("Ann", "Bob") as game:
        assert await game.play(f"Ann: {word} rock Bob") == {
            "Ann": [words.you_wait("rock", "Bob")],
            "Bob": [words.they_wait("Ann")],
        }
        assert await game.play(f"Bob: {word} scissors Ann") == {
            "Ann": [words.win("rock", "scissors", "Bob")],
            "Bob": [words.loss("scissors", "rock", "Ann")],
        }
        assert await game.play("Ann: games") == {"Ann": [words.NOTHING_PENDING]}


@virtual
async def test_nobody_hears_what_was_thrown_at_them_before_they_throw() -> None:
    async with table("Ann", "Bob") as game:
        said = [
            (await game.play(f"{name}: throw {play} {other}"))[other]
            for name, play, other in (("Ann", "paper", "Bob"),)
        ]
        said.append((await game.play("Bob: games"))["Bob"])
        assert said == [[words.they_wait("Ann")], [words.pending("", "Ann")]]
        assert "paper" not in str(said).casefold()


@virtual
async def test_a_tie_is_told_to_both() -> None:
    async with table("Ann", "Bob") as game:
        heard = await game.play("Bob: t p Ann", "Ann: t pape Bob")
        assert heard == {"Ann": [words.tie("paper", "Bob")], "Bob": [words.tie("paper", "Ann")]}


@virtual
async def test_each_reason_to_refuse_a_throw_has_its_own_reply() -> None:
    async with table("Ann", "Bob") as game:
        for text, reply in (
            ("throw", words.THROW_MISSING),
            ("throw rock", words.THROW_MISSING),
            ("throw rock at Bob", words.THROW_MISSING),
            ("throw lizard Bob", words.no_such_play("lizard")),
            ("throw rocky Bob", words.no_such_play("rocky")),
            ("throw rock Zoe", words.no_such_opponent("Zoe")),
            ("throw rock Zoe!", words.no_such_opponent("Zoe")),
            ("throw rock Zoe+1", words.no_such_opponent("Zoe+1")),
            ("throw rock aNN", words.ONESELF),
        ):
            assert await game.play(f"Ann: {text}") == {"Ann": [reply]}, text
        assert await game.play("Cid: throw rock Ann") == {"Cid": [words.NO_NICK]}
        await game.play("Ann: throw rock Bob")
        assert await game.play("Ann: throw paper bob") == {
            "Ann": [words.thrown_already("rock", "Bob")]
        }
        heard = await game.play("Bob: throw scissors Ann")
        assert heard["Ann"] == [words.win("rock", "scissors", "Bob")], "the first throw counts"


@pytest.mark.parametrize("word", ["quit", "stop", "STOP", " Quit \n", "Stop!"])
@virtual
async def test_who_quits_is_gone_with_nickname_and_games_on_either_side(word: str) -> None:
    async with table("Ann", "Bob", "Cid", "Dan") as game:
        await game.play("Ann: t r Bob", "Cid: t p Ann", "Dan: t s Bob")
        assert await game.play(f"Ann: {word}") == {
            "Ann": [words.OPTED_OUT],
            "Cid": [words.they_left("Ann")],
        }, "Bob was not waiting"
        assert await game.play("Bob: games") == {"Bob": [words.pending("", "Dan")]}
        assert await game.play("Cid: games") == {"Cid": [words.NOTHING_PENDING]}
        assert await game.play("Bob: t r Ann") == {"Bob": [words.no_such_opponent("Ann")]}
        assert await game.play("Bob: quit") == {
            "Bob": [words.OPTED_OUT],
            "Dan": [words.they_left("Bob")],
        }
        assert await game.play("Ann: start") == {"Ann": [words.BACK]}
        assert await game.play("Ann: t r Bob") == {"Ann": [words.NO_NICK]}
        assert await game.play("Ann: nick Ann") == {"Ann": [words.welcome("Ann")]}


@virtual
async def test_nobody_who_takes_over_a_nickname_inherits_games_or_scores() -> None:
    apps = Apps(shared=False)
    async with table("Ann", "Bob", apps=apps) as game:
        await game.play("Ann: t r Bob", "Bob: t s Ann")
        await game.play("Ann: t r Bob", "Bob: quit", "Cid: nick Bob")
        assert await game.play("Cid: games") == {"Cid": [words.NOTHING_PENDING]}
        assert await game.play("Cid: t p Ann") == {
            "Cid": [words.you_wait("paper", "Ann")],
            "Ann": [words.they_wait("Bob")],
        }, "it is not the second throw of Ann's game with the first Bob"
        assert await game.play("Cid: score") == {"Cid": [words.NO_GAMES]}
        await game.play("Ann: t p Bob")
        heard = await game.play("Ann: score")
        assert heard["Ann"] == [
            "Total: 1 won, 0 lost, 1 tie. Against Bob: 1 won, 0 lost, 0 ties. "
            "Against Bob: 0 won, 0 lost, 1 tie."
        ]
        await game.play("Ann: quit", "Cid: quit")
    left = {key[0].partition("#")[0] for key in apps.own if key[0].startswith("rps-")}
    assert left == {"rps-consent"}, "nothing else is left of those who are gone"


@virtual
async def test_help_is_general_or_about_a_topic() -> None:
    async with table() as game:
        for text in ("help", "?", "HELP", "help me", "", "   \n\t "):
            assert await game.play(f"Ann: {text}") == {"Ann": [words.HELP]}, text
        for topic in ("nick", "throw", "quit", "start", "games", "score", "top"):
            assert await game.play(f"Ann: help {topic}") == {"Ann": [words.TOPICS[topic]]}
        assert await game.play("Ann: ? T") == {"Ann": [words.TOPICS["throw"]]}
        assert await game.play("Ann: help stop") == {"Ann": [words.TOPICS["quit"]]}


@virtual
async def test_anything_else_is_said_to_be_so_and_points_to_help() -> None:
    async with table() as game:
        assert await game.play("Ann: hello there") == {"Ann": [words.unknown("hello")]}
        assert "help" in words.unknown("hello")
        [said] = (await game.play("Ann: " + "x" * 1_000))["Ann"]
        assert len(said) < 160


@virtual
async def test_games_tells_who_waits_for_whom() -> None:
    async with table("Ann", "Bob", "Cid", "Dan") as game:
        assert await game.play("Ann: games") == {"Ann": ["No games are waiting."]}
        await game.play("Ann: t r Bob", "Ann: t r Cid", "Dan: t r Ann")
        assert await game.play("Ann: GAMES") == {
            "Ann": ["You are waiting for Bob, Cid. Waiting for you: Dan."]
        }
        assert await game.play("+12025550199: games") == {"+12025550199": [words.NO_NICK]}


@virtual
async def test_score_counts_wins_losses_and_ties_in_all_and_for_each_opponent() -> None:
    async with table("Ann", "Bob", "Cid") as game:
        assert await game.play("Ann: score") == {"Ann": [words.NO_GAMES]}
        await game.play("Ann: t r Bob", "Bob: t s Ann", "Ann: t r Bob", "Bob: t r Ann")
        await game.play("Cid: t p Ann", "Ann: t r Cid")
        assert await game.play("Ann: score") == {
            "Ann": [
                "Total: 1 won, 1 lost, 1 tie. Against Bob: 1 won, 0 lost, 1 tie. "
                "Against Cid: 0 won, 1 lost, 0 ties."
            ]
        }
        assert await game.play("Bob: score ANN") == {"Bob": ["Against Ann: 0 won, 1 lost, 1 tie."]}
        assert await game.play("Bob: score Cid") == {"Bob": [words.never_played("Cid")]}
        assert await game.play("+12025550199: score") == {"+12025550199": [words.NO_NICK]}


@virtual
async def test_of_very_many_opponents_the_score_names_some_and_counts_all() -> None:
    async with table("Ann") as game:
        for number in range(12):
            phone = f"+120255502{number:02d}"
            await game.play(f"{phone}: nick P{number}", f"Ann: t r P{number}", f"{phone}: t s Ann")
        [said] = (await game.play("Ann: score"))["Ann"]
        assert said.startswith("Total: 12 won, 0 lost, 0 ties. Against P0: 1 won")
        assert said.endswith("Against P9: 1 won, 0 lost, 0 ties. ...")
        [said] = (await game.play("Ann: score p11"))["Ann"]
        assert said == "Against P11: 1 won, 0 lost, 0 ties."


@virtual
async def test_of_very_many_who_had_a_nickname_the_score_names_the_last() -> None:
    async with table("Ann") as game:
        for number in range(12):
            throws = ["Bob: nick Bob", *["Ann: t r Bob", "Bob: t s Ann"] * (1 + number // 11)]
            await game.play(*throws, "Bob: quit", "Bob: start")
        [said] = (await game.play("Ann: score bob"))["Ann"]
        once = "Against Bob: 1 won, 0 lost, 0 ties."
        assert said == " ".join([once.replace("1", "2"), *[once] * 9, words.MORE])


@virtual
async def test_top_tells_who_has_won_the_most() -> None:
    async with table("Ann", "Bob", "Cid") as game:
        assert await game.play("Ann: top") == {"Ann": [words.NOBODY_ON_TOP]}
        for winner, loser in (("Ann", "Bob"), ("Cid", "Bob"), ("Cid", "Ann")):
            await game.play(f"{winner}: t r {loser}", f"{loser}: t s {winner}")
        assert await game.play("Bob: top") == {"Bob": ["1. Cid (2), 2. Ann (1)"]}
        await game.play("Cid: quit")
        assert await game.play("Bob: top") == {"Bob": ["1. Ann (1)"]}


@virtual
async def test_surrounding_white_space_is_ignored() -> None:
    async with table("Ann", "Bob") as game:
        heard = await game.play("Ann:  \t throw\u00a0 rock \n  Bob \r\n ")
        assert heard["Bob"] == [words.they_wait("Ann")]
        assert await game.play("Cid: nick Cid  ") == {"Cid": [words.welcome("Cid")]}


@virtual
async def test_a_player_is_a_number_however_it_is_written() -> None:
    async with table("Ann") as game:
        heard = await game.play("+1 (202) 555-0101: nick Other")
        assert heard == {"Ann": [words.has_nick("Ann")]}
        assert await game.play("001-202-555-0101: games") == {"Ann": [words.NOTHING_PENDING]}


@virtual
async def test_many_games_of_one_who_quits_are_cleared_in_several_commits() -> None:
    apps = Apps(shared=False)
    async with table("Ann", apps=apps) as game:
        others = [f"+120255502{number:02d}" for number in range(32)]
        for number, phone in enumerate(others):
            await game.play(f"{phone}: nick P{number}")
            await game.play(f"{phone}: t r Ann" if number % 2 else f"Ann: t r P{number}")
        heard = await game.play("Ann: quit")
        assert heard.pop("Ann") == [words.OPTED_OUT]
        assert heard == {phone: [words.they_left("Ann")] for phone in others[1::2]}
        shown = await game.play(f"{others[0]}: games")
        assert shown == {others[0]: [words.NOTHING_PENDING]}
    assert not [key for key in apps.own if key[0].startswith("rps-thrown")]
    assert not [key for key in apps.own if key[0].startswith("rps-awaited")]


@virtual
async def test_queues_of_the_game_are_closed_to_callers() -> None:
    """A job there says by itself whose text it is, or which number is to be texted."""
    async with table() as game:
        book = game.app.node.queue_settings
        ours = [name for name in book.names() if name.startswith("rps-")]
        assert len(ours) >= 3
        assert [name for name in ours if not book(name).internal] == []
