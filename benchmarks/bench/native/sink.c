// sink PORT FOLDER: a broker that does next to nothing. It answers a request with FOLDER/KEY.VERSION, or else with FOLDER/KEY, which has
// a whole response with any correlation id. A request that has neither closes its connection.
#include "sockets.h"

#define HEADER 12
#define KEYS 100
#define VERSIONS 20
#define AT_ONCE 64
#define LARGE (64 << 10)

typedef struct {
  char *bytes;
  size_t size;
} Response;

typedef struct {
  char head[8]; // size and correlation id
  Response *response;
} Answer;

typedef struct {
  int fd;
  bool blocked;
  char header[HEADER];
  size_t have, skip;         // bytes of the header of the next request; bytes of this one to come
  Answer *answers;           // a ring
  size_t first, last, room;  // how many were sent whole, how many there were, how many the ring has room for
  size_t sent;               // bytes of the first
} Connection;

static int epoll;
static Response responses[KEYS][VERSIONS];

static Response *response_to(const char *folder, int key, int version) {
  if (key < 0 || key >= KEYS || version < 0 || version >= VERSIONS) return NULL;
  Response *found = &responses[key][version];
  char path[4096];
  if (!found->bytes) {
    snprintf(path, sizeof path, "%s/%d.%d", folder, key, version);
    if (access(path, R_OK)) snprintf(path, sizeof path, "%s/%d", folder, key);
    if (access(path, R_OK)) return NULL;
    found->bytes = content(path, &found->size);
  }
  return found;
}

static void add_answer(Connection *to, Response *response) {
  if (to->last - to->first == to->room) {
    size_t room = to->room ? to->room * 2 : 16;
    Answer *larger = allocate(room * sizeof *larger);
    for (size_t i = to->first; i < to->last; i++) larger[i % room] = to->answers[i % to->room];
    free(to->answers);
    to->answers = larger;
    to->room = room;
  }
  Answer *answer = &to->answers[to->last++ % to->room];
  memcpy(answer->head, response->bytes, 4);
  memcpy(answer->head + 4, to->header + 8, 4);
  answer->response = response;
}

// Returns false when the connection is lost.
static bool send_answers(Connection *to) {
  while (to->first < to->last) {
    struct iovec parts[2 * AT_ONCE];
    int count = 0;
    size_t skip = to->sent;
    for (size_t i = to->first; i < to->last && count < 2 * AT_ONCE; i++, skip = 0) {
      Answer *answer = &to->answers[i % to->room];
      size_t of_head = skip < 8 ? skip : 8, of_body = skip < 8 ? 8 : skip;
      if (of_head < 8) parts[count++] = (struct iovec){answer->head + of_head, 8 - of_head};
      parts[count++] = (struct iovec){answer->response->bytes + of_body, answer->response->size - of_body};
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(to->fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent < 0) break;
    for (to->sent += sent; to->first < to->last; to->first++) {
      size_t size = to->answers[to->first % to->room].response->size;
      if (to->sent < size) break;
      to->sent -= size;
    }
  }
  bool blocked = to->first < to->last;
  if (blocked != to->blocked) watch(epoll, EPOLL_CTL_MOD, to->fd, (to->blocked = blocked) ? EPOLLIN | EPOLLOUT : EPOLLIN, to);
  return true;
}

// Returns false when the connection is lost, or asks for what is not known.
static bool read_requests(Connection *from, const char *folder) {
  static char buffer[256 << 10];
  bool large = from->skip > LARGE; // not copied out of the kernel
  ssize_t got = large ? recv(from->fd, NULL, from->skip, MSG_TRUNC) : recv(from->fd, buffer, sizeof buffer, 0);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  for (size_t at = 0, size = got; at < size;) {
    if (from->skip) {
      size_t step = from->skip < size - at ? from->skip : size - at;
      from->skip -= step;
      at += step;
      continue;
    }
    from->header[from->have++] = buffer[at++];
    if (from->have < HEADER) continue;
    uint32_t kinds = number_at(from->header + 4);
    Response *response = response_to(folder, kinds >> 16, kinds & 0xffff);
    if (!response || number_at(from->header) < HEADER - 4) {
      fprintf(stderr, "sink: no answer to API %u, version %u\n", kinds >> 16, kinds & 0xffff);
      return false;
    }
    add_answer(from, response);
    from->skip = number_at(from->header) + 4 - HEADER;
    from->have = 0;
  }
  return send_answers(from);
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int listener = listen_at(atoi(arguments[1]));
  epoll = epoll_create1(0);
  watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
  for (;;) {
    struct epoll_event events[EVENTS];
    int ready = epoll_wait(epoll, events, EVENTS, -1);
    for (int i = 0; i < ready; i++) {
      Connection *which = events[i].data.ptr;
      if (!which) {
        which = allocate(sizeof *which);
        which->fd = accept_from(listener);
        watch(epoll, EPOLL_CTL_ADD, which->fd, EPOLLIN, which);
        continue;
      }
      bool alive = !(events[i].events & EPOLLOUT) || send_answers(which);
      if (alive && events[i].events & ~EPOLLOUT) alive = read_requests(which, arguments[2]);
      if (!alive) {
        close(which->fd);
        free(which->answers);
        free(which);
      }
    }
  }
}
