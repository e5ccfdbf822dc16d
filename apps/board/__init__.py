"""A shared live board of sticky notes.

    from apps.board import Board

    app = onceward.App("sqlite:///board.db")
    app.mount("/board", Board(app).site())

`board` serves the page, creates a room for each board and issues tickets for guests; `shapes` has
the schema of such a room. Browsers exchange everything else through the room: `page/model.js` is
the board without a browser, `view.js` the display, `hands.js` the input, `past.js` the history
slider.
"""

from apps.board.board import Board

__all__ = ["Board"]
