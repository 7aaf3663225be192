/* Makes a folder, a file of 8 bytes and a link, renames and removes them: seven changes for fault_test.sh to
 * disturb. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(const char* what) {
  perror(what);
  return 1;
}

int main(int count, char** arguments) {
  if (count != 2 || chdir(arguments[1]) != 0) return failed("chdir");
  if (mkdir("folder", 0755) != 0) return failed("mkdir");
  const int file = open("folder/new", O_WRONLY | O_CREAT, 0644);
  if (file < 0) return failed("open");
  for (size_t done = 0; done < 8;) {
    const ssize_t more = write(file, "contents" + done, 8 - done);
    if (more < 0) return failed("write");
    done += (size_t)more;
  }
  if (fsync(file) != 0) return failed("fsync");
  close(file);
  if (rename("folder/new", "folder/file") != 0) return failed("rename");
  if (symlink("folder", "link") != 0) return failed("symlink");
  if (unlink("link") != 0) return failed("unlink");
  return 0;
}
