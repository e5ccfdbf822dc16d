/* Readers and writers of rooms, the same for all servers: counts the frames that readers get, and
 * how old they are.
 *
 *   reader PORT PATH READERS ROOMS SECONDS WINDOW RATE READY SETUP MESSAGE AFTER
 *
 * Connects READERS readers and one writer for each room, sends each the lines of SETUP, and waits
 * until each has got a frame with READY in it, which AFTER answers, if that is not empty. Then the
 * writers send MESSAGE for SECONDS: one of them has at most WINDOW messages that not all readers of
 * its room have got, and sends at most RATE a second, if that is not 0. In texts {i} is the number
 * of a connection, {room} its room ({room5} with five digits), {n} the number of a message, and {t}
 * "@" and the time. A text that begins with {#, bytes in hexadecimal, and }, is sent as bytes; there
 * {v} is the number of a message, and {u} the one before it, as a number of Yjs with four bytes.
 * Prints one line of JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 18, TEXT = 1 << 16, STAMP = 19 };

struct peer {
    int fd, room, writer, ready, closed, number;
    size_t have;
    char *buffer;
};

struct room {
    uint64_t sent, delivered, next_ns;
    int readers;
};

static struct peer *peers;
static struct room *rooms;
static int n_readers, n_rooms, n_peers, window, n_ready, n_closed;
static double rate;
static const char *ready_mark, *setup_text, *message_text, *after_text;
static uint64_t delivered, sent, measured_from;
/* Ages in microseconds: 32 steps for each doubling. */
static uint64_t ages[64 * 32], aged;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static void fail(const char *why) {
    fprintf(stderr, "%s (%s)\n", why, strerror(errno));
    exit(1);
}

static void note_age(uint64_t ns) {
    uint64_t us = ns / 1000;
    int high = us < 32 ? 0 : 63 - __builtin_clzll(us) - 4;
    uint64_t low = high ? (us >> (high - 1)) - 32 : us;
    ages[high * 32 + (low > 31 ? 31 : low)]++;
    aged++;
}

static double age_ms(double part) {
    uint64_t left = (uint64_t)(part * aged), i;
    for (i = 0; i < 64 * 32; i++) {
        if (ages[i] > left) break;
        left -= ages[i];
    }
    uint64_t high = i / 32, low = i % 32;
    return (high ? (double)((low + 32) << (high - 1)) : (double)low) / 1000;
}

/* Seven bits in each, the lowest first; all but the last say that more follow. */
static size_t four_bytes(char *out, uint64_t number) {
    for (int i = 0; i < 4; i++, number >>= 7) out[i] = (number & 127) | (i < 3 ? 128 : 0);
    return 4;
}

/* A text as the template says; returns its length. */
static size_t fill(char *out, const char *text, struct peer *peer, uint64_t number) {
    size_t size = 0;
    while (*text) {
        if (!strncmp(text, "{i}", 3)) size += sprintf(out + size, "%d", peer->number), text += 3;
        else if (!strncmp(text, "{room5}", 7)) size += sprintf(out + size, "%05d", peer->room), text += 7;
        else if (!strncmp(text, "{room}", 6)) size += sprintf(out + size, "%d", peer->room), text += 6;
        else if (!strncmp(text, "{n}", 3)) size += sprintf(out + size, "%lu", number), text += 3;
        else if (!strncmp(text, "{t}", 3)) size += sprintf(out + size, "@%019lu", now_ns()), text += 3;
        else if (!strncmp(text, "{v}", 3)) size += four_bytes(out + size, number), text += 3;
        else if (!strncmp(text, "{u}", 3)) size += four_bytes(out + size, number - 1), text += 3;
        else if (!strncmp(text, "{#", 2)) {
            unsigned byte;
            for (text += 2; *text != '}'; text += 2) {
                if (sscanf(text, "%2x", &byte) != 1) fail("these are no bytes");
                out[size++] = byte;
            }
            text++;
        } else out[size++] = *text++;
        if (size > TEXT - 64) fail("a message is too long");
    }
    return size;
}

/* What a socket does not take at once is waited for: these messages are small. */
static void send_all(struct peer *peer, const char *data, size_t size) {
    while (size) {
        ssize_t wrote = send(peer->fd, data, size, MSG_NOSIGNAL);
        if (wrote < 0 && errno == EAGAIN) { usleep(50); continue; }
        if (wrote <= 0) return;
        data += wrote, size -= wrote;
    }
}

static void send_frame(struct peer *peer, int opcode, const char *data, size_t size) {
    char out[TEXT + 16];
    size_t at = 0;
    out[at++] = 0x80 | opcode;
    if (size < 126) out[at++] = 0x80 | size;
    else out[at++] = (char)(0x80 | 126), out[at++] = size >> 8, out[at++] = size & 255;
    memset(out + at, 0, 4), at += 4; /* masked by nothing */
    memcpy(out + at, data, size);
    send_all(peer, out, at + size);
}

static void send_text(struct peer *peer, const char *text, uint64_t number) {
    char out[TEXT];
    send_frame(peer, strncmp(text, "{#", 2) ? 1 : 2, out, fill(out, text, peer, number));
}

static void send_setup(struct peer *peer) {
    char *copy = strdup(setup_text), *rest = copy, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line) send_text(peer, line, 0);
    free(copy);
}

static void may_write(struct peer *writer) {
    struct room *room = &rooms[writer->room];
    while (room->sent * room->readers < room->delivered + (uint64_t)window * room->readers) {
        if (rate > 0) {
            uint64_t now = now_ns();
            if (now < room->next_ns) return;
            room->next_ns += (uint64_t)(1e9 / rate);
            if (room->next_ns + 1000000000u < now) room->next_ns = now; /* it cannot keep up */
        }
        room->sent++, sent++;
        send_text(writer, message_text, room->sent);
    }
}

static void got(struct peer *peer, int opcode, char *data, size_t size) {
    if (opcode == 9) { send_frame(peer, 10, data, size); return; }
    if (opcode == 8) { if (!peer->closed) n_closed++; peer->closed = 1; return; }
    if (size == 1 && *data == '2') { send_frame(peer, 1, "3", 1); return; } /* Socket.IO asks */
    if (!peer->ready) {
        if (!memmem(data, size, ready_mark, strlen(ready_mark))) return;
        peer->ready = 1, n_ready++;
        if (*after_text) send_text(peer, after_text, 0);
        return;
    }
    if (peer->writer) return;
    char *stamp = memmem(data, size, "@00", 3); /* bytes may have an @ elsewhere */
    if (!stamp || stamp + STAMP >= data + size) return;
    rooms[peer->room].delivered++;
    if (!measured_from) return;
    delivered++;
    note_age(now_ns() - strtoull(stamp + 1, NULL, 10));
}

static void take(struct peer *peer) {
    ssize_t more = recv(peer->fd, peer->buffer + peer->have, BUFFER - peer->have, 0);
    if (more < 0 && errno == EAGAIN) return;
    if (more <= 0) {
        if (!peer->closed) n_closed++;
        peer->closed = 1;
        close(peer->fd);
        return;
    }
    peer->have += more;
    char *at = peer->buffer, *end = peer->buffer + peer->have;
    while (end - at >= 2) {
        uint64_t size = at[1] & 127;
        size_t width = size == 126 ? 2 : size == 127 ? 8 : 0, head = 2 + width;
        if ((size_t)(end - at) < head) break;
        if (width) size = 0;
        for (size_t i = 0; i < width; i++) size = size << 8 | (unsigned char)at[2 + i];
        if (head + size > BUFFER) { /* too large to keep: nothing that is counted */
            uint64_t left = head + size - (end - at);
            if (!peer->ready) peer->ready = 1, n_ready++;
            char waste[65536];
            fcntl(peer->fd, F_SETFL, 0);
            while (left) {
                ssize_t read = recv(peer->fd, waste, left < sizeof waste ? left : sizeof waste, 0);
                if (read <= 0) fail("a large frame ended early");
                left -= read;
            }
            fcntl(peer->fd, F_SETFL, O_NONBLOCK);
            at = end;
            break;
        }
        if ((uint64_t)(end - at) < head + size) break;
        got(peer, at[0] & 15, at + head, size);
        at += head + size;
    }
    peer->have = end - at;
    memmove(peer->buffer, at, peer->have);
}

static void dial(struct peer *peer, int port, const char *path) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (peer->fd < 0 || connect(peer->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    char head[TEXT * 2], filled[TEXT];
    filled[fill(filled, path, peer, 0)] = 0;
    size_t size = sprintf(head, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", filled, port);
    send_all(peer, head, size);
    size_t have = 0;
    while (!have || !memmem(head, have, "\r\n\r\n", 4)) {
        ssize_t more = recv(peer->fd, head + have, 1, 0); /* no byte beyond the head */
        if (more <= 0) fail("no answer to the handshake");
        have += more;
    }
    if (strncmp(head, "HTTP/1.1 101", 12)) fail("the handshake was refused");
    fcntl(peer->fd, F_SETFL, O_NONBLOCK);
    peer->buffer = malloc(BUFFER);
    send_setup(peer);
}

static void turn(int epoll, int wait_ms) {
    struct epoll_event events[512];
    int count = epoll_wait(epoll, events, 512, wait_ms);
    for (int i = 0; i < count; i++) take(events[i].data.ptr);
}

int main(int argc, char **argv) {
    if (argc != 12) fail("wrong arguments");
    int port = atoi(argv[1]);
    const char *path = argv[2];
    n_readers = atoi(argv[3]), n_rooms = atoi(argv[4]);
    double seconds = atof(argv[5]);
    window = atoi(argv[6]), rate = atof(argv[7]);
    ready_mark = argv[8], setup_text = argv[9], message_text = argv[10];
    after_text = argv[11];
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    n_peers = n_readers + n_rooms;
    peers = calloc(n_peers, sizeof *peers), rooms = calloc(n_rooms, sizeof *rooms);
    int epoll = epoll_create1(0);
    for (int i = 0; i < n_peers; i++) {
        struct peer *peer = &peers[i];
        peer->number = i, peer->room = i % n_rooms, peer->writer = i >= n_readers;
        if (peer->writer) peer->room = i - n_readers;
        else rooms[peer->room].readers++;
        dial(peer, port, path);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
        epoll_ctl(epoll, EPOLL_CTL_ADD, peer->fd, &event);
        turn(epoll, 0);
    }
    uint64_t begun = now_ns();
    while (n_ready < n_peers && now_ns() - begun < 60000000000u) turn(epoll, 100);
    if (n_ready < n_peers) fail("not everyone was let in");
    fprintf(stderr, "ready\n");
    uint64_t start = now_ns(), warm = start + (uint64_t)(seconds * 2e8), end = warm + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < n_rooms; i++) rooms[i].next_ns = start;
    uint64_t now = start;
    while (now < end) {
        if (!measured_from && now >= warm) measured_from = now, fprintf(stderr, "measuring\n");
        for (int i = n_readers; i < n_peers; i++) may_write(&peers[i]);
        turn(epoll, rate > 0 ? 0 : 10);
        now = now_ns();
    }
    fprintf(stderr, "done\n");
    printf("{\"delivered\": %lu, \"seconds\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
        "\"max_ms\": %.3f, \"closed\": %d}\n",
        delivered, (now - measured_from) / 1e9, age_ms(.5), age_ms(.99), age_ms(.999999), n_closed);
    return 0;
}
