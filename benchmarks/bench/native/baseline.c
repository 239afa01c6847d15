// baseline LISTEN UPSTREAM: copies bytes between clients and a broker, and looks at none of them. A proxy that copies cannot cost less.
#include "sockets.h"

#define SIZE (256 << 10)

// One socket of a connection. `buffer` has what was read from it and is not yet written to the other one, from begin to end.
typedef struct Side {
  int fd;
  uint32_t events;
  size_t begin, end;
  char *buffer;
  struct Side *other, *next_closed;
} Side;

static int epoll;
static Side *closed; // freed when all events of a round are handled, as others of them may be about these

static Side *side(int fd) {
  Side *made = allocate(sizeof *made);
  made->fd = fd;
  made->buffer = malloc(SIZE); // not cleared: a silent connection is to take no memory
  made->events = EPOLLIN;
  watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, made);
  return made;
}

static void want(Side *side, uint32_t event, bool wanted) {
  uint32_t events = wanted ? side->events | event : side->events & ~event;
  if (events != side->events) watch(epoll, EPOLL_CTL_MOD, side->fd, side->events = events, side);
}

static void close_both(Side *side) {
  for (int i = 0; i < 2; i++, side = side->other) {
    close(side->fd);
    side->fd = -1;
    side->next_closed = closed;
    closed = side;
  }
}

static void copy(Side *from) {
  if (from->begin == from->end) {
    ssize_t got = recv(from->fd, from->buffer, SIZE, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      close_both(from);
      return;
    }
    from->begin = 0;
    from->end = got;
  }
  ssize_t sent = send(from->other->fd, from->buffer + from->begin, from->end - from->begin, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) {
    close_both(from);
    return;
  }
  if (sent > 0) from->begin += sent;
  bool blocked = from->begin < from->end;
  want(from, EPOLLIN, !blocked);
  want(from->other, EPOLLOUT, blocked);
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int listener = listen_at(atoi(arguments[1])), upstream = atoi(arguments[2]);
  epoll = epoll_create1(0);
  watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
  for (;;) {
    struct epoll_event events[EVENTS];
    int ready = epoll_wait(epoll, events, EVENTS, -1);
    for (int i = 0; i < ready; i++) {
      Side *which = events[i].data.ptr;
      if (!which) {
        Side *front = side(accept_from(listener)), *back = side(connect_to(upstream));
        front->other = back;
        back->other = front;
        continue;
      }
      if (which->fd >= 0 && events[i].events & EPOLLOUT) copy(which->other);
      if (which->fd >= 0 && which->events & EPOLLIN && events[i].events & ~EPOLLOUT) copy(which);
    }
    while (closed) {
      Side *done = closed;
      closed = done->next_closed;
      free(done->buffer);
      free(done);
    }
  }
}
