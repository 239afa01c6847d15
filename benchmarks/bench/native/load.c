// load PORT REQUEST ANSWER_SIZE CONNECTIONS DEPTH RATE SECONDS [OFFSET ...]: clients with requests in flight.
//
// REQUEST is a file with a whole request. Each connection has DEPTH of them in flight or, where RATE is above 0, all together send RATE
// in a second at even intervals, and DEPTH is the most that may be in flight. Each OFFSET is where a batch of an idempotent producer has
// its producer id, epoch and base sequence: a connection is one producer, and the sequence grows with each request.
//
// Prints "start" after half a second, and SECONDS later, once there is an answer, a line of JSON: answers since then, answers in all, and
// the seconds that half of them and all but one in a hundred took at most, from when the request was due. With SECONDS 0 the line comes when there are as many answers as connections.
// Connections stay open until standard input ends. An answer with another size or correlation id than is due ends the program.
#include "sockets.h"
#include <sys/prctl.h>

#define WARM_UP 500000000ull
#define LARGE (64 << 10)
#define EPOCH_AND_SEQUENCE 6

typedef struct {
  int fd;
  bool blocked;
  uint32_t number;
  uint64_t asked, answered, written; // requests, answers, bytes
  char *ring;                        // DEPTH requests: what is in flight, and only that, is in it
  uint64_t *due;                     // nanoseconds, of each request in the ring
  char head[8];
  size_t have, skip;
} Client;

static int epoll, offsets_count;
static char *request, **offsets;
static size_t request_size, answer_size, depth;
static uint64_t all_answers;
static uint32_t *took; // nanoseconds, of the answers since the start
static size_t took_count, took_room;
static bool counting;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void wrong(const char *what) {
  fprintf(stderr, "load: %s\n", what);
  exit(1);
}

static void flush(Client *client) {
  size_t ring = depth * request_size;
  bool blocked = false;
  while (client->written < client->asked * request_size && !blocked) {
    size_t begin = client->written % ring, left = client->asked * request_size - client->written;
    ssize_t sent = send(client->fd, client->ring + begin, left < ring - begin ? left : ring - begin, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) fail("load: send");
    blocked = sent < 0;
    client->written += blocked ? 0 : sent;
  }
  if (blocked != client->blocked)
    watch(epoll, EPOLL_CTL_MOD, client->fd, (client->blocked = blocked) ? EPOLLIN | EPOLLOUT : EPOLLIN, client);
}

static void ask(Client *client, uint64_t due) {
  char *copy = client->ring + client->asked % depth * request_size;
  client->due[client->asked % depth] = due;
  put_number(copy + 8, client->asked);
  for (int i = 0; i < offsets_count; i++) {
    char *ids = copy + atoi(offsets[i]);
    memset(ids, 0, 8 + EPOCH_AND_SEQUENCE);
    put_number(ids + 4, 1000 + client->number);
    put_number(ids + 10, client->asked & 0x7fffffff);
  }
  client->asked++;
}

static void answer(Client *client, uint64_t when) {
  uint64_t due = client->due[client->answered % depth];
  client->answered++;
  all_answers++;
  if (!counting) return;
  if (took_count == took_room && !(took = realloc(took, (took_room = took_room * 2 + 65536) * sizeof *took))) fail("memory");
  took[took_count++] = when > due ? when - due : 0;
}

static void read_answers(Client *client) {
  static char buffer[256 << 10];
  bool large = client->skip > LARGE;
  ssize_t got = large ? recv(client->fd, NULL, client->skip, MSG_TRUNC) : recv(client->fd, buffer, sizeof buffer, 0);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) wrong("a connection was closed");
  uint64_t when = now();
  for (size_t at = 0, size = got; at < size;) {
    if (client->skip) {
      size_t step = client->skip < size - at ? client->skip : size - at;
      client->skip -= step;
      at += step;
      if (!client->skip) answer(client, when);
      continue;
    }
    client->head[client->have++] = buffer[at++];
    if (client->have < sizeof client->head) continue;
    if (number_at(client->head) + 4 != answer_size) wrong("an answer has another size");
    if (number_at(client->head + 4) != (uint32_t)client->answered) wrong("an answer has another correlation id");
    client->have = 0;
    if (!(client->skip = answer_size - sizeof client->head)) answer(client, when);
  }
}

static void refill(Client *client, uint64_t due) {
  while (client->asked - client->answered < depth) ask(client, due);
  flush(client);
}

static int by_size(const void *a, const void *b) {
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  return (left > right) - (left < right);
}

static void tell(void) {
  qsort(took, took_count, sizeof *took, by_size);
  double half = took_count ? took[took_count / 2] : 0, most = took_count ? took[took_count * 99 / 100] : 0;
  printf("{\"frames\": %zu, \"all\": %llu, \"p50\": %.9f, \"p99\": %.9f}\n", took_count, (unsigned long long)all_answers, half / 1e9,
         most / 1e9);
  fflush(stdout);
}

int main(int count, char **arguments) {
  if (count < 8) return 2;
  request = content(arguments[2], &request_size);
  answer_size = atol(arguments[3]);
  int connections = atoi(arguments[4]), rate = atoi(arguments[6]);
  depth = atoi(arguments[5]);
  double seconds = atof(arguments[7]);
  offsets = arguments + 8;
  offsets_count = count - 8;
  prctl(PR_SET_TIMERSLACK, 1);
  epoll = epoll_create1(0);
  if (!seconds) puts("start"), fflush(stdout);

  Client *clients = allocate(connections * sizeof *clients);
  for (int i = 0; i < connections; i++) {
    Client *client = &clients[i];
    client->number = i;
    client->ring = allocate(depth * request_size);
    for (size_t k = 0; k < depth; k++) memcpy(client->ring + k * request_size, request, request_size);
    client->due = allocate(depth * sizeof *client->due);
    client->fd = connect_to(atoi(arguments[1]));
    watch(epoll, EPOLL_CTL_ADD, client->fd, EPOLLIN, client);
    if (!rate) refill(client, now());
  }
  uint64_t began = now(), sent = 0, start = began + WARM_UP, end = start + (uint64_t)(seconds * 1e9);
  for (;;) {
    uint64_t time = now(), wake = counting ? end : start;
    if (!seconds && all_answers >= (uint64_t)connections) break;
    if (seconds && !counting && time >= start) {
      counting = true;
      puts("start"), fflush(stdout);
    }
    if (seconds && time >= end && took_count) break; // one answer at least, also where others have all of the machine
    if (time >= end) wake = time + 10000000;
    if (rate) {
      uint64_t due;
      for (; (due = began + sent * 1000000000ull / rate) <= time; sent++) {
        Client *client = &clients[sent % connections];
        if (client->asked - client->answered == depth) break; // its time to the answer counts from when it was due
        ask(client, due);
        flush(client);
      }
      wake = due < wake ? due : wake;
    }
    struct epoll_event events[EVENTS];
    uint64_t left = wake > time ? wake - time : 0;
    struct timespec limit = {left / 1000000000, left % 1000000000};
    int ready = epoll_pwait2(epoll, events, EVENTS, seconds ? &limit : NULL, NULL);
    if (ready < 0 && errno != EINTR) fail("load: epoll_pwait2");
    for (int i = 0; i < ready; i++) {
      Client *client = events[i].data.ptr;
      if (events[i].events & EPOLLOUT) flush(client);
      if (events[i].events & ~EPOLLOUT) read_answers(client);
      if (seconds && !rate) refill(client, now());
    }
  }
  tell();
  while (getchar() != EOF) continue;
}
