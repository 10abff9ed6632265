/* The load client of the bench: keep-alive connections to one HTTP door, in a closed loop or at a rate.
 *
 *     client --port 8080 --path /v1/messages --body '{"to":"+{to}","text":"{text}"}' --header 'Authorization: Bearer {key}'
 *            --keys FILE --class otp --count 20000 --connections 50 [--rate 100] [--batch 100 --item '{...}']
 *            [--first 0] [--seconds 60] [--accepted Success]
 *
 * In path, body, headers: {seq} the number of the message, {to} a phone number of its own, {class}, {key} of the keys in
 * turn, {text} a text of one segment that names number, class and instant (+ for spaces in a path), {items} the items of
 * a batch. `--rate`: requests a second, timed from the instant at which each was due; without it the next follows the
 * answer. Accepted are answers 200 or 202 (whose body has `--accepted`, if given); of a batch its items with status 202.
 * One line of JSON at the end. */
#include "wire.h"

enum { STATUSES = 600, HEADERS_MAX = 8, REQUEST_ROOM = 4096 };

struct line {
    int fd;
    bool is_busy;
    int64_t began_us;
    struct buffer in, out;
};

static struct {
    int port, connections;
    uint64_t count, first, batch;
    double rate, seconds;
    const char *path, *body, *item, *class_name, *accepted, *headers[HEADERS_MAX];
    int header_count;
} asked = {.port = 8080, .connections = 50, .count = 20000, .batch = 1, .seconds = 600, .path = "/", .class_name = "x"};

static char **keys;
static size_t key_count;
static struct line *lines;
static struct samples took;
static uint64_t statuses[STATUSES], begun, ended, accepted, broken;
static int64_t start_us, last_us;
static int poller;

static void add_text(struct buffer *b, const char *text) { buffer_add(b, text, strlen(text)); }

static void add_filled(struct buffer *b, const char *template, uint64_t seq, bool is_path);

static void add_field(struct buffer *b, const char *name, uint64_t seq, bool is_path) {
    char text[192];
    if (strcmp(name, "seq") == 0) snprintf(text, sizeof text, "%lu", seq);
    else if (strcmp(name, "to") == 0) snprintf(text, sizeof text, "4477%08lu", seq % 100000000);
    else if (strcmp(name, "class") == 0) snprintf(text, sizeof text, "%s", asked.class_name);
    else if (strcmp(name, "key") == 0) snprintf(text, sizeof text, "%s", key_count ? keys[seq % key_count] : "");
    else if (strcmp(name, "text") == 0) {
        snprintf(text, sizeof text, "b%lu.%s.%ld of the bench, about as long as what a bank or a shop tells people every day", seq,
                 asked.class_name, wall_us());
        for (char *at = text; is_path && *at; at++)
            if (*at == ' ') *at = '+';
    } else if (strcmp(name, "items") == 0) {
        for (uint64_t n = 0; n < asked.batch; n++) {
            if (n > 0) add_text(b, ",");
            add_filled(b, asked.item, seq * asked.batch + n, false);
        }
        return;
    } else give_up("unknown field in a template");
    add_text(b, text);
}

/* {name} with a lower-case name is a field; any other brace is itself. */
static void add_filled(struct buffer *b, const char *template, uint64_t seq, bool is_path) {
    for (const char *at = template; *at;) {
        const char *end = *at == '{' && at[1] >= 'a' && at[1] <= 'z' ? strchr(at, '}') : NULL;
        if (end != NULL && end - at < 12) {
            char name[12] = {0};
            memcpy(name, at + 1, (size_t)(end - at - 1));
            add_field(b, name, seq, is_path);
            at = end + 1;
        } else buffer_add(b, at++, 1);
    }
}

static void begin(struct line *l, uint64_t seq, int64_t due_us) {
    static struct buffer body;
    body.from = body.to = 0;
    if (asked.body != NULL) add_filled(&body, asked.body, seq, false);
    add_text(&l->out, asked.body != NULL ? "POST " : "GET ");
    add_filled(&l->out, asked.path, seq, true);
    add_text(&l->out, " HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for (int n = 0; n < asked.header_count; n++) {
        add_filled(&l->out, asked.headers[n], seq, false);
        add_text(&l->out, "\r\n");
    }
    if (asked.body != NULL) {
        char length[96];
        snprintf(length, sizeof length, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.to);
        add_text(&l->out, length);
    }
    add_text(&l->out, "\r\n");
    if (body.to > 0) buffer_add(&l->out, body.at, body.to);
    l->is_busy = true;
    l->began_us = due_us;
    begun++;
}

/* Octets of the first whole answer, 0 where there is none yet; `text` is its body. */
static size_t whole_answer(struct buffer *in, const char **text, size_t *text_size) {
    const char *at = (const char *)in->at + in->from;
    size_t there = in->to - in->from;
    const char *end = there ? memmem(at, there, "\r\n\r\n", 4) : NULL;
    if (end == NULL) return 0;
    size_t head = (size_t)(end - at) + 4, length = 0;
    bool is_chunked = false;
    for (const char *line = memchr(at, '\n', head); line != NULL && line < end; line = memchr(line + 1, '\n', (size_t)(end + 2 - line))) {
        if (strncasecmp(line + 1, "content-length:", 15) == 0) length = (size_t)strtoul(line + 16, NULL, 10);
        if (strncasecmp(line + 1, "transfer-encoding: chunked", 26) == 0) is_chunked = true;
        if (line + 1 >= end) break;
    }
    *text = at + head;
    if (is_chunked) {
        const char *last = there > head ? memmem(at + head, there - head, "0\r\n\r\n", 5) : NULL;
        if (last == NULL) return 0;
        *text_size = (size_t)(last - *text);
        return (size_t)(last - at) + 5;
    }
    *text_size = length;
    return head + length <= there ? head + length : 0;
}

static uint64_t occurrences(const char *text, size_t size, const char *what) {
    uint64_t found = 0;
    size_t length = strlen(what);
    for (const char *at = text; (at = memmem(at, size - (size_t)(at - text), what, length)) != NULL; at += length) found++;
    return found;
}

static void judge(int status, const char *text, size_t size, int64_t now_us, struct line *l) {
    statuses[status >= 0 && status < STATUSES ? status : 0]++;
    bool is_good = (status == 200 || status == 202) && (asked.accepted == NULL || memmem(text, size, asked.accepted, strlen(asked.accepted)));
    if (!is_good) return;
    accepted += asked.batch > 1 ? occurrences(text, size, "\"status\":202") : 1;
    samples_add(&took, now_us - l->began_us);
}

static void dial(struct line *l) {
    l->fd = connect_to(asked.port);
    l->in.from = l->in.to = l->out.from = l->out.to = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(l - lines)};
    epoll_ctl(poller, EPOLL_CTL_ADD, l->fd, &event);
}

static void push(struct line *l) {
    if (!buffer_write(&l->out, l->fd)) return; /* its end is read next */
    struct epoll_event event = {.events = EPOLLIN | (l->out.from < l->out.to ? EPOLLOUT : 0), .data.u32 = (uint32_t)(l - lines)};
    epoll_ctl(poller, EPOLL_CTL_MOD, l->fd, &event);
}

static void read_answer(struct line *l) {
    bool goes_on = buffer_read(&l->in, l->fd);
    const char *text;
    size_t text_size, size = whole_answer(&l->in, &text, &text_size);
    int64_t now_us = mono_us();
    if (size > 0 && l->is_busy) {
        judge(atoi((const char *)l->in.at + l->in.from + 9), text, text_size, now_us, l);
        l->in.from += size;
    } else if (goes_on) return;
    if (l->is_busy) {
        if (size == 0) broken++;
        l->is_busy = false;
        ended++;
        last_us = now_us;
    }
    if (!goes_on) {
        close(l->fd);
        dial(l);
    }
}

static void read_keys(const char *path) {
    FILE *file = fopen(path, "r");
    char *word = NULL;
    size_t room = 0;
    if (file == NULL) give_up(path);
    for (ssize_t size; (size = getline(&word, &room, file)) > 0;) {
        word[strcspn(word, "\r\n")] = 0;
        keys = more(keys, (key_count + 1) * sizeof *keys);
        keys[key_count++] = strdup(word);
    }
    fclose(file);
}

static void read_options(int count, char **words) {
    static const struct option names[] = {
        {"port", 1, NULL, 'p'}, {"path", 1, NULL, 'u'}, {"body", 1, NULL, 'b'}, {"header", 1, NULL, 'h'}, {"keys", 1, NULL, 'k'},
        {"class", 1, NULL, 'c'}, {"count", 1, NULL, 'n'}, {"connections", 1, NULL, 'l'}, {"rate", 1, NULL, 'r'}, {"batch", 1, NULL, 'B'},
        {"item", 1, NULL, 'i'}, {"first", 1, NULL, 'f'}, {"seconds", 1, NULL, 's'}, {"accepted", 1, NULL, 'a'}, {NULL, 0, NULL, 0}};
    for (int name; (name = getopt_long(count, words, "", names, NULL)) != -1;) {
        switch (name) {
        case 'p': asked.port = atoi(optarg); break;
        case 'u': asked.path = optarg; break;
        case 'b': asked.body = optarg; break;
        case 'h': if (asked.header_count < HEADERS_MAX) asked.headers[asked.header_count++] = optarg; break;
        case 'k': read_keys(optarg); break;
        case 'c': asked.class_name = optarg; break;
        case 'n': asked.count = strtoull(optarg, NULL, 10); break;
        case 'l': asked.connections = atoi(optarg); break;
        case 'r': asked.rate = atof(optarg); break;
        case 'B': asked.batch = strtoull(optarg, NULL, 10); break;
        case 'i': asked.item = optarg; break;
        case 'f': asked.first = strtoull(optarg, NULL, 10); break;
        case 's': asked.seconds = atof(optarg); break;
        case 'a': asked.accepted = optarg; break;
        default: exit(2);
        }
    }
}

/* Begins what may begin now; microseconds until the next request is due. */
static int64_t begin_due(uint64_t requests) {
    for (int n = 0; n < asked.connections && begun < requests; n++) {
        if (lines[n].is_busy) continue;
        int64_t now_us = mono_us(), due_us = now_us;
        if (asked.rate > 0) {
            due_us = start_us + (int64_t)((double)begun * 1e6 / asked.rate);
            if (due_us > now_us) return due_us - now_us;
        }
        begin(&lines[n], asked.first / asked.batch + begun, due_us);
        push(&lines[n]);
    }
    return 100000;
}

static void tell(void) {
    double took_s = (double)(last_us - start_us) / 1e6;
    printf("{\"asked\":%lu,\"accepted\":%lu,\"broken\":%lu,\"took_s\":%.3f,\"accepted_per_s\":%.1f,\"answers\":{", begun * asked.batch,
           accepted, broken, took_s, took_s > 0 ? (double)accepted / took_s : 0.0);
    const char *comma = "";
    for (int n = 0; n < STATUSES; n++) {
        if (statuses[n] == 0) continue;
        printf("%s\"%d\":%lu", comma, n, statuses[n]);
        comma = ",";
    }
    printf("},\"http_ms\":");
    print_samples(stdout, &took);
    printf("}\n");
}

int main(int count, char **words) {
    read_options(count, words);
    signal(SIGPIPE, SIG_IGN);
    poller = epoll_create1(0);
    lines = calloc((size_t)asked.connections, sizeof *lines);
    for (int n = 0; n < asked.connections; n++) dial(&lines[n]);
    uint64_t requests = (asked.count + asked.batch - 1) / asked.batch;
    start_us = last_us = mono_us();
    while (ended < requests && (double)(mono_us() - start_us) < asked.seconds * 1e6) {
        int64_t pause_us = begin_due(requests);
        struct timespec pause = {.tv_nsec = (pause_us > 100000 ? 100000 : pause_us) * 1000};
        struct epoll_event events[256];
        int ready = epoll_pwait2(poller, events, 256, &pause, NULL);
        for (int n = 0; n < ready; n++) {
            struct line *l = &lines[events[n].data.u32];
            if (events[n].events & EPOLLOUT) push(l);
            if (events[n].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_answer(l);
        }
    }
    tell();
    return 0;
}
