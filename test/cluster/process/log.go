// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	// maxLogSize is how large a log file may grow; the one before it is kept.
	maxLogSize       = 32 << 20
	logLimitInterval = 15 * time.Second
	previousLog      = ".1"
	maxTailBytes     = 64 << 10
)

func logsIn(dir string) string { return filepath.Join(dir, "logs") }

// openLog opens a log for appending: only so can it be cut to nothing while a
// program writes to it.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// rotateLog puts the log of an earlier run aside.
func rotateLog(path string) error {
	if err := os.Rename(path, path+previousLog); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotate log: %w", err)
	}
	return nil
}

// appendToLog writes a line of ours into a component's log. The log is no place to
// fail over: what the line says stands in the status as well.
func appendToLog(path, line string) {
	if log, err := openLog(path); err == nil {
		fmt.Fprintf(log, "--- %s %s\n", time.Now().Format(time.RFC3339), line)
		log.Close()
	}
}

// limitLogs keeps every log of the group under maxLogSize, roughly.
func (g *Group) limitLogs(ctx context.Context) {
	tick := time.NewTicker(logLimitInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, status := range g.List() {
			if err := limitLog(status.LogPath, maxLogSize); err != nil {
				appendToLog(status.LogPath, "this log cannot be bounded: "+err.Error())
			}
		}
	}
}

// limitLog copies a log that is too large aside and cuts it to nothing; it
// cannot be renamed, because the program goes on writing to the file it has.
func limitLog(path string, most int64) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= most {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path+previousLog, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, copied := io.Copy(to, from)
	return errors.Join(copied, to.Close(), os.Truncate(path, 0))
}

// Tail returns the last lines of a text file, at most so many and at most
// 64 KiB, without the last line feed.
func Tail(path string, lines int) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	start := max(info.Size()-maxTailBytes, 0)
	content, err := io.ReadAll(io.NewSectionReader(file, start, maxTailBytes))
	if err != nil {
		return "", err
	}
	if start > 0 { // begin with a whole line
		_, content, _ = bytes.Cut(content, []byte("\n"))
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n"), nil
}

type logKey struct{}

// Log is where a component that lives in this process (Spec.Run) writes its
// log. With a context that is not such a component's it discards.
func Log(ctx context.Context) io.Writer {
	if log, ok := ctx.Value(logKey{}).(io.Writer); ok {
		return log
	}
	return io.Discard
}

// maxReasonSearchBytes bounds what is searched of a log, in bytes; a start logs less.
const maxReasonSearchBytes = 4 << 20

// fatalPatterns are the lines by which programs say why they give up, the clearest
// first: a structured log's last word (zap's, klog's), Go's, and an error.
var fatalPatterns = []*regexp.Regexp{
	regexp.MustCompile(`"level":"(fatal|panic)"|^F[0-9]{4} `),
	regexp.MustCompile(`^(panic|fatal error): `),
	regexp.MustCompile(`"level":"error"`),
}

// logSize is where a log's next line will begin.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // not there yet
	}
	return info.Size()
}

// findReason returns the first of the gravest lines that a log has from an offset on,
// without the stack in it; empty where no line looks like it. A stack that
// follows the reason would otherwise push it out of the log's tail.
func findReason(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() < from {
		from = 0 // cut to nothing meanwhile
	}
	found := make([]string, len(fatalPatterns))
	reader := bufio.NewReader(io.NewSectionReader(file, from, maxReasonSearchBytes))
	for {
		line, err := reader.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		for i, looks := range fatalPatterns {
			if found[i] == "" && looks.MatchString(line) {
				found[i] = line
			}
		}
		if err != nil {
			break
		}
	}
	for _, line := range found {
		if line != "" {
			return trimStack(line)
		}
	}
	return ""
}

// trimStack cuts a structured line's stack, which is its last field.
func trimStack(line string) string {
	if before, _, found := strings.Cut(line, `,"stacktrace":"`); found {
		return before + "}"
	}
	return line
}

// StartError says why a component did not become ready.
type StartError struct {
	// Name of the component.
	Name string
	// Err is the reason.
	Err error
	// Reason is the line of this start's log that looks like the program's own
	// reason to give up; empty where none does.
	Reason string
	// LogPath and Tail are the component's log file and its last lines.
	LogPath, Tail string
}

// Error shows the reason, ours and the program's, where the log lies, and its last
// lines.
func (e *StartError) Error() string {
	text := fmt.Sprintf("start %s: %v", e.Name, e.Err)
	if e.Tail == "" {
		return text + " (its log " + e.LogPath + " is empty)"
	}
	if e.Reason != "" && !strings.HasSuffix(e.Tail, e.Reason) {
		text += "\nit says: " + e.Reason
	}
	return text + "\nthe end of " + e.LogPath + ":\n    " + strings.ReplaceAll(e.Tail, "\n", "\n    ")
}

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// startError is of a start whose log begins at the offset from.
func (c *component) startError(err error, from int64) *StartError {
	tail, _ := Tail(c.logPath, 20) // a log that cannot be read must not hide the reason
	return &StartError{Name: c.spec.Name, Err: err, Reason: findReason(c.logPath, from), LogPath: c.logPath, Tail: tail}
}

// errorOrNil keeps a nil *StartError from becoming an error that is not nil.
func errorOrNil(err *StartError) error {
	if err == nil {
		return nil
	}
	return err
}
