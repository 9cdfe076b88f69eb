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
	// maxLogSize limits the size of a log file, in bytes; the previous log is kept.
	maxLogSize       = 32 << 20
	logLimitInterval = 15 * time.Second
	previousLog      = ".1"
	maxTailBytes     = 64 << 10
)

func logsIn(dir string) string { return filepath.Join(dir, "logs") }

// openLog opens a log for appending, which allows truncating it while a program writes to
// it.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// rotateLog renames the log of an earlier run.
func rotateLog(path string) error {
	if err := os.Rename(path, path+previousLog); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotate log: %w", err)
	}
	return nil
}

// appendToLog writes a line of the group into a component's log. It ignores errors: the
// status has the same information.
func appendToLog(path, line string) {
	if log, err := openLog(path); err == nil {
		fmt.Fprintf(log, "--- %s %s\n", time.Now().Format(time.RFC3339), line)
		log.Close()
	}
}

// limitLogs keeps the size of all logs of the group near maxLogSize.
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
				appendToLog(status.LogPath, "cannot limit the size of this log: "+err.Error())
			}
		}
	}
}

// limitLog copies a log that is too large and truncates it. It cannot rename the log,
// because the program has the file open.
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
	_, copyErr := io.Copy(to, from)
	return errors.Join(copyErr, to.Close(), os.Truncate(path, 0))
}

// Tail returns the last lines of a text file, at most so many and at most 64 KiB, without
// the last line feed.
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
	if start > 0 { // start at the beginning of a line
		_, content, _ = bytes.Cut(content, []byte("\n"))
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n"), nil
}

type logKey struct{}

// Log returns the log of a component that runs in this process (Spec.Run). For any other
// context it returns a writer that discards everything.
func Log(ctx context.Context) io.Writer {
	if log, ok := ctx.Value(logKey{}).(io.Writer); ok {
		return log
	}
	return io.Discard
}

// maxReasonSearchBytes limits, in bytes, how much of a log is searched; the log of a start
// is smaller.
const maxReasonSearchBytes = 4 << 20

// fatalPatterns match the lines in which programs report why they end, the clearest first:
// the fatal line of a structured log (zap, klog), a Go panic, and an error.
var fatalPatterns = []*regexp.Regexp{
	regexp.MustCompile(`"level":"(fatal|panic)"|^F[0-9]{4} `),
	regexp.MustCompile(`^(panic|fatal error): `),
	regexp.MustCompile(`"level":"error"`),
}

// logSize returns the offset of a log's next line.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // does not exist yet
	}
	return info.Size()
}

// findReason returns the first line that matches the clearest pattern in the log from the
// offset on, without its stack, or "". A stack that follows the reason would push it out of
// the log's tail.
func findReason(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() < from {
		from = 0 // truncated meanwhile
	}
	found := make([]string, len(fatalPatterns))
	reader := bufio.NewReader(io.NewSectionReader(file, from, maxReasonSearchBytes))
	for {
		line, err := reader.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		for i, pattern := range fatalPatterns {
			if found[i] == "" && pattern.MatchString(line) {
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

// trimStack removes the stack from a structured log line, where it is the last field.
func trimStack(line string) string {
	if before, _, found := strings.Cut(line, `,"stacktrace":"`); found {
		return before + "}"
	}
	return line
}

// StartError reports why a component did not become ready.
type StartError struct {
	// Name of the component.
	Name string
	// Err is the reason.
	Err error
	// Reason is the log line that explains the program's end; it may be empty.
	Reason string
	// LogPath and Tail are the component's log file and its last lines.
	LogPath, Tail string
}

// Error describes the reason, the program's own reason, the log file and its last lines.
func (e *StartError) Error() string {
	text := fmt.Sprintf("start %s: %v", e.Name, e.Err)
	if e.Tail == "" {
		return text + " (its log " + e.LogPath + " is empty)"
	}
	if e.Reason != "" && !strings.HasSuffix(e.Tail, e.Reason) {
		text += "\nits log reports: " + e.Reason
	}
	return text + "\nthe end of " + e.LogPath + ":\n    " + strings.ReplaceAll(e.Tail, "\n", "\n    ")
}

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// startError returns the error of a start whose log begins at offset from.
func (c *component) startError(err error, from int64) *StartError {
	tail, _ := Tail(c.logPath, 20) // an unreadable log must not hide the reason
	return &StartError{Name: c.spec.Name, Err: err, Reason: findReason(c.logPath, from), LogPath: c.logPath, Tail: tail}
}

// errorOrNil prevents that a nil *StartError becomes a non-nil error.
func errorOrNil(err *StartError) error {
	if err == nil {
		return nil
	}
	return err
}
