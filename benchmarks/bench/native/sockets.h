// Sockets on loopback and epoll, for the programs of the bench. An error here ends the program.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64

static inline void fail(const char *what) {
  perror(what);
  exit(1);
}

static inline void *allocate(size_t size) {
  void *found = calloc(1, size);
  if (!found) fail("memory");
  return found;
}

static inline struct sockaddr_in loopback(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static inline void prepare(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (fcntl(fd, F_SETFL, O_NONBLOCK)) fail("fcntl");
}

static inline int listen_at(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  struct sockaddr_in address = loopback(port);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) fail("listen");
  return fd;
}

static inline int connect_to(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = loopback(port);
  if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
  prepare(fd);
  return fd;
}

static inline int accept_from(int listener) {
  int fd = accept(listener, NULL, NULL);
  if (fd < 0) fail("accept");
  prepare(fd);
  return fd;
}

static inline void watch(int epoll, int operation, int fd, uint32_t events, void *data) {
  struct epoll_event event = {.events = events, .data.ptr = data};
  if (epoll_ctl(epoll, operation, fd, &event)) fail("epoll_ctl");
}

static inline uint32_t number_at(const char *bytes) {
  uint32_t found;
  memcpy(&found, bytes, 4);
  return ntohl(found);
}

static inline void put_number(char *bytes, uint32_t number) {
  number = htonl(number);
  memcpy(bytes, &number, 4);
}

// The whole of a file.
static inline char *content(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) fail(path);
  *size = ftell(file);
  rewind(file);
  char *found = allocate(*size + 1);
  if (fread(found, 1, *size, file) != *size) fail(path);
  fclose(file);
  return found;
}
