/* What carrier.c, client.c and sink.c share: time, samples, a growing buffer, sockets of loopback. */
#ifndef WIRE_H
#define WIRE_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NAME_MAX_OCTETS 24

static inline void give_up(const char *what) {
    perror(what);
    exit(1);
}

static inline void *more(void *old, size_t octets) {
    void *got = realloc(old, octets);
    if (got == NULL) give_up("realloc");
    return got;
}

static inline int64_t clock_us(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
static inline int64_t mono_us(void) { return clock_us(CLOCK_MONOTONIC); }
static inline int64_t wall_us(void) { return clock_us(CLOCK_REALTIME); }

/* Samples of microseconds, kept whole: quantiles are exact. */
struct samples {
    uint32_t *at;
    size_t count, room;
};

static inline void samples_add(struct samples *s, int64_t us) {
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 4096;
        s->at = more(s->at, s->room * sizeof *s->at);
    }
    s->at[s->count++] = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static inline int compare_samples(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static inline void print_samples(FILE *out, struct samples *s) {
    if (s->count == 0) {
        fputs("null", out);
        return;
    }
    qsort(s->at, s->count, sizeof *s->at, compare_samples);
    fprintf(out, "{\"count\":%zu,\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f}", s->count, s->at[s->count / 2] / 1e3,
            s->at[s->count * 99 / 100] / 1e3, s->at[s->count - 1] / 1e3);
}

/* Octets from `from` to `to` are waiting. */
struct buffer {
    uint8_t *at;
    size_t from, to, room;
};

static inline uint8_t *buffer_space(struct buffer *b, size_t octets) {
    if (b->from == b->to) b->from = b->to = 0;
    if (b->to + octets > b->room && b->from > 0) {
        memmove(b->at, b->at + b->from, b->to - b->from);
        b->to -= b->from;
        b->from = 0;
    }
    if (b->to + octets > b->room) {
        b->room = (b->to + octets) * 2;
        b->at = more(b->at, b->room);
    }
    return b->at + b->to;
}

static inline void buffer_add(struct buffer *b, const void *octets, size_t count) {
    memcpy(buffer_space(b, count), octets, count);
    b->to += count;
}

/* Reads what is there. 1: goes on, 0: the other side ended or the link broke. */
static inline int buffer_read(struct buffer *b, int fd) {
    ssize_t got = read(fd, buffer_space(b, 65536), 65536);
    if (got > 0) b->to += (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Writes what the socket takes. 1: goes on (also with something left), 0: the link broke. */
static inline int buffer_write(struct buffer *b, int fd) {
    while (b->from < b->to) {
        ssize_t gone = write(fd, b->at + b->from, b->to - b->from);
        if (gone < 0 && errno == EINTR) continue;
        if (gone < 0) return errno == EAGAIN;
        b->from += (size_t)gone;
    }
    return 1;
}

static inline void make_quick(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline int listen_on(int port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024)) give_up("listen");
    make_quick(fd);
    return fd;
}

static inline int connect_to(int port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) give_up("connect");
    make_quick(fd);
    return fd;
}

static inline void watch(int poller, int fd, bool is_new, bool wants_room) {
    struct epoll_event event = {.events = EPOLLIN | (wants_room ? EPOLLOUT : 0), .data.fd = fd};
    epoll_ctl(poller, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}
#endif
