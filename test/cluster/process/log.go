// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxLogSize is how large a log file may grow; the one before it is kept.
	maxLogSize      = 32 << 20
	boundEvery      = 15 * time.Second
	previousLog     = ".1"
	mostTailInBytes = 64 << 10
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

// noteLog writes a line of ours into a component's log. The log is no place to
// fail over: what the line says stands in the status as well.
func noteLog(path, line string) {
	if log, err := openLog(path); err == nil {
		fmt.Fprintf(log, "--- %s %s\n", time.Now().Format(time.RFC3339), line)
		log.Close()
	}
}

// boundLogs keeps every log of the group under maxLogSize, roughly.
func (g *Group) boundLogs(ctx context.Context) {
	tick := time.NewTicker(boundEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, status := range g.List() {
			if err := boundLog(status.LogPath, maxLogSize); err != nil {
				noteLog(status.LogPath, "this log cannot be bounded: "+err.Error())
			}
		}
	}
}

// boundLog copies a log that is too large aside and cuts it to nothing; it
// cannot be renamed, because the program goes on writing to the file it has.
func boundLog(path string, most int64) error {
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
	start := max(info.Size()-mostTailInBytes, 0)
	content, err := io.ReadAll(io.NewSectionReader(file, start, mostTailInBytes))
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
