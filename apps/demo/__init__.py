"""The demonstration: what `make demo` runs (`python -m apps.demo`).

It consists of several processes. The *stage* is the parent: it starts and restarts the others. The
*server* has all applications on one embedded database, and a landing page. *Workers* claim jobs
over HTTP and are killed now and then.

    stage       runs the processes and reports their state
    crew        a process that is restarted whenever it ends
    desk        the stage's HTTP server: external services, and the control API of the landing page
    traffic     a sender with duplicates, timers, and orders that are tracked to their end
    crowd       bots at a table, and cursors on the board
    storm       duplicate credit applications while workers are killed
    book        counts of acknowledged messages and their effects, outside the server
    served      the server's application, with settings from the stage
    shop        its orders and parcels
    landing     its front page, which forwards requests to the desk
    worker      a worker

The stage counts everything that the page shows, where messages are sent and effects arrive, so the
counts are independent of the server.
"""
