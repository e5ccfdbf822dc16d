"""The demonstration: what `make demo` runs (`python -m apps.demo`).

A few processes. The *stage* is the parent: it starts the others, and starts them again when they
end. The *server* has all applications on one embedded database, and a landing page. *Workers* claim
jobs over HTTP, and are killed now and then.

    stage       keeps the processes, and says how all of it goes
    crew        a process that is started again whenever it ends
    desk        the stage's own address: the world outside, and what the landing page asks for
    traffic     an impatient sender, timers, and orders that are followed to their end
    crowd       bots at a table, and cursors on the board
    storm       credit applications that come many times, while workers are killed
    book        what was acknowledged, and what came of it: counted outside the server, purely
    served      the server's application, by what the stage tells it
    shop        its orders and parcels
    landing     its front page, which passes questions and orders on to the desk
    worker      what a worker does

Whatever the page shows is counted by the stage, where messages are sent and effects arrive: the
server cannot know it, and cannot gloss over anything.
"""
