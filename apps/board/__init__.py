"""A board of sticky notes that people share live.

    from apps.board import Board

    app = onceward.App("sqlite:///board.db")
    app.mount("/board", Board(app).site())

`board` serves the page, makes a room for each board and gives guests their tickets; `shapes` says
what may be in such a room. The rest happens between browsers and the room: `page/model.js` is the
board without a browser, `view.js` what is seen, `hands.js` what is done, `past.js` the slider.
"""

from apps.board.board import Board

__all__ = ["Board"]
