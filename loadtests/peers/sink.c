/* The callback endpoint of the bench: answers every request with 200 and one text, counts them.
 *
 *     sink --port 8099 [--text "ACK/Jasmin"]
 *
 * A line of JSON with the count is written each 200 ms in which it changed and at SIGTERM. */
#include "wire.h"

enum { CONNECTIONS_MAX = 4096, TICK_US = 200000 };

static struct {
    bool is_open;
    struct buffer in, out;
} lines[CONNECTIONS_MAX];
static uint64_t taken;
static volatile sig_atomic_t must_stop;

static void on_signal(int number) {
    (void)number;
    must_stop = 1;
}

static void end_line(int fd) {
    close(fd);
    free(lines[fd].in.at);
    free(lines[fd].out.at);
    memset(&lines[fd], 0, sizeof lines[fd]);
}

/* Octets of the first whole request, 0 where there is none yet. */
static size_t whole_request(const struct buffer *in) {
    const char *at = (const char *)in->at + in->from;
    size_t there = in->to - in->from;
    const char *end = there ? memmem(at, there, "\r\n\r\n", 4) : NULL;
    if (end == NULL) return 0;
    size_t size = (size_t)(end - at) + 4;
    for (const char *line = memchr(at, '\n', size); line != NULL && line < end; line = memchr(line + 1, '\n', (size_t)(end + 2 - line))) {
        if (strncasecmp(line + 1, "content-length:", 15) == 0) size += (size_t)strtoul(line + 16, NULL, 10);
        if (line + 1 >= end) break;
    }
    return size <= there ? size : 0;
}

static void tell(void) {
    printf("{\"callbacks\":%lu}\n", taken);
    fflush(stdout);
}

int main(int count, char **words) {
    int port = 8099;
    const char *text = "OK";
    static const struct option names[] = {
        {"port", required_argument, NULL, 'p'}, {"text", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};
    for (int name; (name = getopt_long(count, words, "", names, NULL)) != -1;) {
        if (name == 'p') port = atoi(optarg);
        else if (name == 't') text = optarg;
        else return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    char answer[256];
    int size = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s",
                        strlen(text), text);
    int poller = epoll_create1(0), listener = listen_on(port);
    watch(poller, listener, true, false);
    uint64_t told = 0;
    for (int64_t tick_us = 0; !must_stop;) {
        struct epoll_event events[256];
        int ready = epoll_wait(poller, events, 256, TICK_US / 1000);
        for (int n = 0; n < ready; n++) {
            int fd = events[n].data.fd;
            if (fd == listener) {
                for (int one; (one = accept(listener, NULL, NULL)) >= 0;) {
                    if (one >= CONNECTIONS_MAX) close(one);
                    else {
                        make_quick(one);
                        lines[one].is_open = true;
                        watch(poller, one, true, false);
                    }
                }
                continue;
            }
            bool goes_on = buffer_read(&lines[fd].in, fd);
            for (size_t one; goes_on && (one = whole_request(&lines[fd].in)) > 0;) {
                lines[fd].in.from += one;
                taken++;
                buffer_add(&lines[fd].out, answer, (size_t)size);
            }
            if (!goes_on || !buffer_write(&lines[fd].out, fd)) end_line(fd);
        }
        if (mono_us() >= tick_us && taken != told) {
            tell();
            told = taken;
            tick_us = mono_us() + TICK_US;
        }
    }
    tell();
    return 0;
}
