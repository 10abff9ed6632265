/* The carrier of the bench: takes SMPP 3.4 binds, answers submits at once or later, sends receipts, counts.
 *
 *     carrier --port 2775 [--answer-ms 20] [--receipt-ms 200]
 *
 * Texts that begin with `b<number>.<class>.<microseconds> ` tell when their request left the client: the time from there
 * to the arrival of the submit_sm is noted by class. A line of JSON is written each 200 ms in which something changed and
 * at SIGTERM; SIGUSR1 begins to count anew. One thread; every field and its code is from the SMPP 3.4 specification. */
#include "wire.h"

enum { BIND_RX = 1, BIND_TX = 2, SUBMIT = 4, DELIVER = 5, UNBIND = 6, BIND_TRX = 9, ENQUIRE = 0x15, ANSWER = 1u << 31 };
enum { HEAD = 16, CONNECTIONS_MAX = 1024, CLASSES_MAX = 8, PDU_MAX = 65536, TICK_US = 200000 };

struct session {
    bool is_open, receives, wants_room;
    uint32_t generation, next_sequence, unanswered;
    struct buffer in, out;
};

/* An answer or a receipt that is due later; each kind has one delay, so each kind is a queue in order of time. */
struct later {
    int64_t due_us;
    int fd;
    uint32_t generation, sequence, id;
    char from[NAME_MAX_OCTETS], to[NAME_MAX_OCTETS];
};
struct queue {
    struct later *at;
    size_t first, count, room;
};

static struct session sessions[CONNECTIONS_MAX];
static struct queue answers, receipts;
static struct {
    uint64_t submits, answered, receipts_sent, receipts_taken;
    uint32_t window_max;
    int64_t first_us, last_us;
} seen;
static struct {
    char name[16];
    struct samples waits;
} classes[CLASSES_MAX];
static int class_count, poller;
static int64_t answer_us, receipt_us = -1;
static uint32_t generations, next_id;
static volatile sig_atomic_t must_stop, must_reset;

static void on_signal(int number) {
    if (number == SIGUSR1) must_reset = 1;
    else must_stop = 1;
}

static struct later *queue_push(struct queue *q) {
    if (q->count == q->room) {
        size_t room = q->room ? q->room * 2 : 1024;
        struct later *at = more(NULL, room * sizeof *at);
        for (size_t n = 0; n < q->count; n++) at[n] = q->at[(q->first + n) % q->room];
        free(q->at);
        *q = (struct queue){.at = at, .count = q->count, .room = room};
    }
    return &q->at[(q->first + q->count++) % q->room];
}

static void queue_pop(struct queue *q) {
    q->first = (q->first + 1) % q->room;
    q->count--;
}

static uint32_t number_at(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void add_pdu(struct session *s, uint32_t command, uint32_t status, uint32_t sequence, const void *body, size_t size) {
    uint32_t head[4] = {htonl((uint32_t)(HEAD + size)), htonl(command), htonl(status), htonl(sequence)};
    buffer_add(&s->out, head, sizeof head);
    if (size > 0) buffer_add(&s->out, body, size);
}

static void answer_submit(struct session *s, uint32_t sequence, uint32_t id) {
    char text[16];
    int size = snprintf(text, sizeof text, "%08x", id);
    add_pdu(s, SUBMIT | ANSWER, 0, sequence, text, (size_t)size + 1);
    s->unanswered--;
    seen.answered++;
}

static size_t put_address(uint8_t *at, const char *address) {
    at[0] = at[1] = 1; /* international, ISDN */
    size_t size = strlen(address) + 1;
    memcpy(at + 2, address, size);
    return size + 2;
}

static void send_receipt(struct session *s, const struct later *one) {
    uint8_t body[512] = {0};
    char text[192], day[16];
    time_t now = time(NULL);
    strftime(day, sizeof day, "%y%m%d%H%M", gmtime(&now));
    int size = snprintf(text, sizeof text, "id:%08x sub:001 dlvrd:001 submit date:%s done date:%s stat:DELIVRD err:000 text:",
                        one->id, day, day);
    size_t at = 1; /* empty service_type */
    at += put_address(body + at, one->to);
    at += put_address(body + at, one->from);
    body[at] = 4; /* esm_class: a receipt; then eight octets of zero up to sm_default_msg_id */
    at += 9;
    body[at++] = (uint8_t)size;
    memcpy(body + at, text, (size_t)size);
    at += (size_t)size;
    const uint8_t id_tag[] = {0x00, 0x1e, 0, 9}, state_tag[] = {0x04, 0x27, 0, 1, 2};
    memcpy(body + at, id_tag, sizeof id_tag);
    at += sizeof id_tag;
    at += (size_t)snprintf((char *)body + at, 10, "%08x", one->id) + 1;
    memcpy(body + at, state_tag, sizeof state_tag);
    at += sizeof state_tag;
    add_pdu(s, DELIVER, 0, ++s->next_sequence, body, at);
    seen.receipts_sent++;
}

/* A C-octet string at most `end`; NULL where it has no end. */
static const uint8_t *read_name(const uint8_t *at, const uint8_t *end, char *name) {
    const uint8_t *zero = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
    if (zero == NULL || zero - at >= NAME_MAX_OCTETS) return NULL;
    if (name != NULL) memcpy(name, at, (size_t)(zero - at) + 1);
    return zero + 1;
}

static void note_wait(const char *text, int64_t now_wall_us) {
    char name[16];
    long long began_us;
    if (sscanf(text, "b%*u.%15[a-z].%lld", name, &began_us) != 2) return;
    int n = 0;
    while (n < class_count && strcmp(classes[n].name, name) != 0) n++;
    if (n == CLASSES_MAX) return;
    if (n == class_count) strcpy(classes[class_count++].name, name);
    samples_add(&classes[n].waits, now_wall_us - began_us);
}

/* False: not a submit_sm of ours. */
static bool take_submit(int fd, struct session *s, uint32_t sequence, const uint8_t *at, const uint8_t *end) {
    struct later one = {.fd = fd, .generation = s->generation, .sequence = sequence, .id = ++next_id};
    if ((at = read_name(at, end, NULL)) == NULL) return false;
    if ((at = read_name(at + 2, end, one.from)) == NULL) return false;
    if ((at = read_name(at + 2, end, one.to)) == NULL || (at += 3) >= end) return false;
    if ((at = read_name(at, end, NULL)) == NULL || (at = read_name(at, end, NULL)) == NULL || at + 5 > end) return false;
    bool wants_receipt = (at[0] & 3) != 0;
    size_t size = at[4];
    if (at + 5 + size > end) return false;
    char text[80] = {0};
    memcpy(text, at + 5, size < sizeof text - 1 ? size : sizeof text - 1);
    int64_t now_us = mono_us();
    note_wait(text, wall_us());
    if (seen.submits++ == 0) seen.first_us = now_us;
    seen.last_us = now_us;
    if (++s->unanswered > seen.window_max) seen.window_max = s->unanswered;
    if (answer_us == 0) answer_submit(s, sequence, one.id);
    else {
        one.due_us = now_us + answer_us;
        *queue_push(&answers) = one;
    }
    if (wants_receipt && receipt_us >= 0) {
        one.due_us = now_us + receipt_us;
        *queue_push(&receipts) = one;
    }
    return true;
}

/* False: the session must end. */
static bool take_pdu(int fd, struct session *s, const uint8_t *pdu, uint32_t size) {
    uint32_t command = number_at(pdu + 4), sequence = number_at(pdu + 12);
    switch (command) {
    case BIND_RX: case BIND_TX: case BIND_TRX:
        s->receives = command != BIND_TX;
        add_pdu(s, command | ANSWER, 0, sequence, "bench", 6);
        return true;
    case SUBMIT:
        if (take_submit(fd, s, sequence, pdu + HEAD, pdu + size)) return true;
        add_pdu(s, SUBMIT | ANSWER, 8, sequence, NULL, 0);
        return true;
    case DELIVER | ANSWER:
        seen.receipts_taken++;
        return true;
    case ENQUIRE:
        add_pdu(s, ENQUIRE | ANSWER, 0, sequence, NULL, 0);
        return true;
    case UNBIND:
        add_pdu(s, UNBIND | ANSWER, 0, sequence, NULL, 0);
        return true;
    default:
        if ((command & ANSWER) == 0) add_pdu(s, ANSWER, 3, sequence, NULL, 0); /* generic_nack: no such command */
        return true;
    }
}

static void end_session(int fd) {
    struct session *s = &sessions[fd];
    close(fd);
    free(s->in.at);
    free(s->out.at);
    memset(s, 0, sizeof *s);
}

static void flush(int fd) {
    struct session *s = &sessions[fd];
    if (!s->is_open) return;
    if (!buffer_write(&s->out, fd)) {
        end_session(fd);
        return;
    }
    bool wants_room = s->out.from < s->out.to;
    if (wants_room != s->wants_room) watch(poller, fd, false, s->wants_room = wants_room);
}

static void read_from(int fd) {
    struct session *s = &sessions[fd];
    bool goes_on = buffer_read(&s->in, fd);
    while (goes_on && s->in.to - s->in.from >= HEAD) {
        const uint8_t *pdu = s->in.at + s->in.from;
        uint32_t size = number_at(pdu);
        if (size < HEAD || size > PDU_MAX) goes_on = false;
        else if (s->in.to - s->in.from < size) break;
        else {
            goes_on = take_pdu(fd, s, pdu, size);
            s->in.from += size;
        }
    }
    if (goes_on) flush(fd);
    else end_session(fd);
}

static void accept_all(int listener) {
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        if (fd >= CONNECTIONS_MAX) {
            close(fd);
            continue;
        }
        make_quick(fd);
        sessions[fd] = (struct session){.is_open = true, .generation = ++generations};
        watch(poller, fd, true, false);
    }
}

/* Where a receipt goes: the session of its submit, else any that receives. */
static int receiver_of(const struct later *one) {
    struct session *s = &sessions[one->fd];
    if (s->is_open && s->generation == one->generation && s->receives) return one->fd;
    for (int fd = 0; fd < CONNECTIONS_MAX; fd++)
        if (sessions[fd].is_open && sessions[fd].receives) return fd;
    return -1;
}

/* Microseconds until the next of a queue is due; -1 where it is empty. */
static int64_t send_due(struct queue *q, bool is_receipts) {
    int64_t now_us = mono_us();
    while (q->count > 0 && q->at[q->first].due_us <= now_us) {
        struct later *one = &q->at[q->first];
        struct session *s = &sessions[one->fd];
        int fd = is_receipts ? receiver_of(one) : s->is_open && s->generation == one->generation ? one->fd : -1;
        if (fd < 0 && is_receipts) return 100000; /* nobody is bound: it waits */
        if (fd >= 0 && is_receipts) send_receipt(&sessions[fd], one);
        else if (fd >= 0) answer_submit(s, one->sequence, one->id);
        queue_pop(q);
    }
    return q->count > 0 ? q->at[q->first].due_us - now_us : -1;
}

static void tell(bool is_last) {
    double took_s = (double)(seen.last_us - seen.first_us) / 1e6;
    printf("{\"submits\":%lu,\"answered\":%lu,\"per_s\":%.1f,\"window_max\":%u,\"receipts_sent\":%lu,\"receipts_taken\":%lu",
           seen.submits, seen.answered, took_s > 0 ? (double)(seen.submits - 1) / took_s : 0.0, seen.window_max,
           seen.receipts_sent, seen.receipts_taken);
    if (is_last) {
        printf(",\"wait_ms\":{");
        for (int n = 0; n < class_count; n++) {
            printf("%s\"%s\":", n ? "," : "", classes[n].name);
            print_samples(stdout, &classes[n].waits);
        }
        printf("}");
    }
    printf("}\n");
    fflush(stdout);
}

static void reset(void) {
    memset(&seen, 0, sizeof seen);
    for (int n = 0; n < class_count; n++) classes[n].waits.count = 0;
    must_reset = 0;
}

static void read_options(int count, char **words, int *port) {
    static const struct option names[] = {
        {"port", required_argument, NULL, 'p'}, {"answer-ms", required_argument, NULL, 'a'},
        {"receipt-ms", required_argument, NULL, 'r'}, {NULL, 0, NULL, 0}};
    for (int name; (name = getopt_long(count, words, "", names, NULL)) != -1;) {
        if (name == 'p') *port = atoi(optarg);
        else if (name == 'a') answer_us = (int64_t)(atof(optarg) * 1000);
        else if (name == 'r') receipt_us = (int64_t)(atof(optarg) * 1000);
        else exit(2);
    }
}

int main(int count, char **words) {
    int port = 2775;
    read_options(count, words, &port);
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    poller = epoll_create1(0);
    int listener = listen_on(port);
    watch(poller, listener, true, false);
    uint64_t told = 0;
    for (int64_t tick_us = 0, wait_us = -1; !must_stop;) {
        struct epoll_event events[256];
        int64_t pause_us = wait_us < 0 || wait_us > TICK_US ? TICK_US : wait_us;
        struct timespec pause = {.tv_nsec = pause_us * 1000};
        int ready = epoll_pwait2(poller, events, 256, &pause, NULL);
        for (int n = 0; n < ready; n++) {
            int fd = events[n].data.fd;
            if (fd == listener) accept_all(listener);
            else if (sessions[fd].is_open && events[n].events & EPOLLOUT) flush(fd);
            if (fd != listener && sessions[fd].is_open && events[n].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_from(fd);
        }
        int64_t next_answer_us = send_due(&answers, false), next_receipt_us = send_due(&receipts, true);
        wait_us = next_answer_us < 0 ? next_receipt_us
                  : next_receipt_us < 0 || next_answer_us < next_receipt_us ? next_answer_us : next_receipt_us;
        for (int fd = 0; (answers.room || receipts.room) && fd < CONNECTIONS_MAX; fd++)
            if (sessions[fd].is_open && sessions[fd].out.from < sessions[fd].out.to) flush(fd);
        if (must_reset) reset();
        uint64_t now = seen.submits + seen.answered + seen.receipts_sent + seen.receipts_taken;
        if (mono_us() >= tick_us && now != told) {
            tell(false);
            told = now;
            tick_us = mono_us() + TICK_US;
        }
    }
    tell(true);
    return 0;
}
