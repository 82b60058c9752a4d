/* The load client: many HTTP/1.1 connections that each ask for a stream, in one epoll loop.
 *
 * Python (bench/server/client.py) compiles this file on use and calls it through ctypes. Every delta begins with '@';
 * in a paced stream the 16 digits of the time at which it was due follow (bench/server/load.py). Times are nanoseconds
 * of CLOCK_MONOTONIC.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DIGITS 16
#define EVENTS 256
#define PIECE (256 * 1024)

struct stream {
    int socket;
    int digits;        /* of the time of a delta that were read; -1 outside of one */
    int status;        /* bytes of the status line that were compared */
    int64_t asked;     /* when, until the first delta comes; 0 from then on */
    int64_t due;       /* the time of the delta that is being read */
    char last[5];      /* the last bytes: a flood ends with the last chunk of its body */
    struct stream *next;
};

struct times {
    int64_t *values;
    int64_t count, room;
};

struct client {
    int poll, flood;
    struct sockaddr_in address;
    struct stream *streams;
    int64_t open, asking, deltas, broken, requests;
    struct times late, first;
    char refused[201]; /* the beginning of an answer that is not 200 */
    char buffer[PIECE];
};

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void note(struct times *times, int64_t value) {
    if (times->count == times->room) {
        times->room = times->room ? times->room * 2 : 4096;
        times->values = realloc(times->values, times->room * sizeof *times->values);
        if (!times->values) abort();
    }
    times->values[times->count++] = value;
}

struct client *client_new(int port, int flood) {
    struct client *client = calloc(1, sizeof *client);
    if (!client) abort();
    client->flood = flood;
    client->poll = epoll_create1(EPOLL_CLOEXEC);
    client->address.sin_family = AF_INET;
    client->address.sin_port = htons(port);
    client->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return client;
}

static void lose(struct client *client, struct stream *stream) {
    close(stream->socket); /* this also takes it out of the epoll set */
    stream->socket = -1;
    client->broken++;
    client->open--;
    if (stream->asked) client->asking--;
}

static void ask(struct client *client, struct stream *stream) {
    char body[256], request[512];
    int size = snprintf(body, sizeof body,
        "{\"id\":\"chat-%016lld-%lld\",\"trigger\":\"submit-message\",\"messages\":[{\"id\":\"user-1\",\"role\":\"user\","
        "\"parts\":[{\"type\":\"text\",\"text\":\"Why does the kettle sing?\"}]}]}",
        (long long)now(), (long long)client->requests++); /* no chat has the id of another */
    size = snprintf(request, sizeof request,
        "POST /%s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
        client->flood ? "flood" : "paced", size, body);
    if (!stream->asked) client->asking++;
    stream->asked = now();
    stream->digits = -1;
    stream->status = 0;
    memset(stream->last, 0, sizeof stream->last);
    if (send(stream->socket, request, size, MSG_NOSIGNAL) != size) lose(client, stream);
}

/* Compare the status line; return 0 if the answer is refused. */
static int accepted(struct client *client, struct stream *stream, const char *data, ssize_t size) {
    static const char expected[] = "HTTP/1.1 200";
    for (ssize_t place = 0; place < size && stream->status < (int)sizeof expected - 1; place++)
        if (data[place] != expected[stream->status++]) {
            snprintf(client->refused, sizeof client->refused, "%.*s", (int)size, data);
            return 0;
        }
    return 1;
}

static void receive(struct client *client, struct stream *stream, const char *data, ssize_t size) {
    int64_t time = now();
    const char *end = data + size;
    if (!accepted(client, stream, data, size)) return;
    for (const char *place = data; place < end;) {
        if (stream->digits < 0) {
            place = memchr(place, '@', end - place);
            if (!place) break;
            place++;
            if (stream->asked) {
                note(&client->first, time - stream->asked);
                stream->asked = 0;
                client->asking--;
            }
            if (client->flood) {
                client->deltas++;
            } else {
                stream->digits = 0;
                stream->due = 0;
            }
            continue;
        }
        while (place < end && stream->digits < DIGITS) {
            stream->due = stream->due * 10 + (*place++ - '0');
            stream->digits++;
        }
        if (stream->digits == DIGITS) {
            client->deltas++;
            note(&client->late, time - stream->due);
            stream->digits = -1;
        }
    }
    if (client->flood) {
        int fresh = size < 5 ? (int)size : 5;
        memmove(stream->last, stream->last + fresh, 5 - fresh);
        memcpy(stream->last + 5 - fresh, end - fresh, fresh);
        if (!memcmp(stream->last, "0\r\n\r\n", 5)) ask(client, stream);
    }
}

/* Read until a time; stop early if the server refused a request. */
static void read_until(struct client *client, int64_t end) {
    struct epoll_event events[EVENTS];
    int64_t left;
    while ((left = end - now()) > 0 && !client->refused[0]) {
        int found = epoll_wait(client->poll, events, EVENTS, (int)((left + 999999) / 1000000));
        for (int number = 0; number < found; number++) {
            struct stream *stream = events[number].data.ptr;
            ssize_t size = recv(stream->socket, client->buffer, PIECE, MSG_DONTWAIT);
            if (size > 0)
                receive(client, stream, client->buffer, size);
            else if (size == 0 || (errno != EAGAIN && errno != EINTR))
                lose(client, stream);
        }
    }
}

/* Open streams, evenly spread in time; return 0, or errno if a connection was refused. */
int client_open(struct client *client, int64_t streams, double per_second) {
    int64_t begin = now();
    int one = 1;
    for (int64_t number = 0; number < streams; number++) {
        read_until(client, begin + (int64_t)(number * 1e9 / per_second));
        struct stream *stream = calloc(1, sizeof *stream);
        if (!stream) abort();
        stream->next = client->streams;
        client->streams = stream;
        stream->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (stream->socket < 0) return errno;
        if (connect(stream->socket, (struct sockaddr *)&client->address, sizeof client->address)) {
            int error = errno;
            close(stream->socket);
            stream->socket = -1;
            return error;
        }
        setsockopt(stream->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        client->open++;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
        epoll_ctl(client->poll, EPOLL_CTL_ADD, stream->socket, &event);
        ask(client, stream);
    }
    return 0;
}

void client_read(struct client *client, double seconds) { read_until(client, now() + (int64_t)(seconds * 1e9)); }

void client_forget(struct client *client) { client->deltas = client->late.count = client->first.count = 0; }

int64_t client_deltas(struct client *client) { return client->deltas; }
int64_t client_broken(struct client *client) { return client->broken; }
int64_t client_open_streams(struct client *client) { return client->open; }
int64_t client_asking(struct client *client) { return client->asking; }
const char *client_refused(struct client *client) { return client->refused; }
int64_t client_late(struct client *client, int64_t **values) { return *values = client->late.values, client->late.count; }
int64_t client_first(struct client *client, int64_t **values) { return *values = client->first.values, client->first.count; }

void client_free(struct client *client) {
    while (client->streams) {
        struct stream *stream = client->streams;
        client->streams = stream->next;
        if (stream->socket >= 0) close(stream->socket);
        free(stream);
    }
    close(client->poll);
    free(client->late.values);
    free(client->first.values);
    free(client);
}
