// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// logOptions are the options of kubectl logs.
type logOptions struct {
	follow, previous, timestamps bool
	// since omits older lines; zero omits none.
	since time.Time
	// tail is the number of newest lines, and limit that of bytes; negative for all.
	tail, limit int64
}

// parseLogOptions parses the query of a request for logs, at this time.
func parseLogOptions(query url.Values, now time.Time) (logOptions, error) {
	options := logOptions{tail: -1, limit: -1}
	for _, flag := range []struct {
		name  string
		value *bool
	}{{"follow", &options.follow}, {"previous", &options.previous}, {"timestamps", &options.timestamps}} {
		if text := query.Get(flag.name); text != "" {
			value, err := strconv.ParseBool(text)
			if err != nil {
				return options, newHTTPError(http.StatusBadRequest, "%s %q: must be true or false", flag.name, text)
			}
			*flag.value = value
		}
	}
	seconds := int64(-1)
	for _, number := range []struct {
		name    string
		value   *int64
		minimum int64
	}{{"tailLines", &options.tail, 0}, {"limitBytes", &options.limit, 1}, {"sinceSeconds", &seconds, 1}} {
		if text := query.Get(number.name); text != "" {
			value, err := strconv.ParseInt(text, 10, 64)
			if err != nil || value < number.minimum {
				return options, newHTTPError(http.StatusBadRequest, "%s %q: must be a number of at least %d", number.name, text, number.minimum)
			}
			*number.value = value
		}
	}
	if seconds >= 0 {
		// Longer than any pod runs, and not too long for a duration.
		options.since = now.Add(-time.Duration(min(seconds, 1<<32)) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return options, newHTTPError(http.StatusBadRequest, "sinceTime %q: must be a time such as 2026-01-31T12:00:00Z", text)
		}
		options.since = since
	}
	return options, nil
}

// runOf returns the run whose log is read. As in a kubelet, that of a container in back-off
// is its last one.
func runOf(pod *corev1.Pod, container string, previous bool) (run, error) {
	status := statusOf(pod, container)
	if status == nil {
		return run{}, newHTTPError(http.StatusBadRequest, "container %q in pod %q is waiting to start: ContainerCreating", container, pod.Name)
	}
	last := status.LastTerminationState.Terminated
	switch state := status.State; {
	case previous && last == nil:
		return run{}, newHTTPError(http.StatusBadRequest, "previous terminated container %q in pod %q not found", container, pod.Name)
	case previous && state.Waiting != nil:
		return endedRun(pod, status.RestartCount, last), nil
	case previous:
		return endedRun(pod, status.RestartCount-1, last), nil
	case state.Running != nil:
		return run{uid: pod.UID, number: status.RestartCount, started: state.Running.StartedAt.Time}, nil
	case state.Terminated != nil:
		return endedRun(pod, status.RestartCount, state.Terminated), nil
	case last != nil:
		return endedRun(pod, status.RestartCount, last), nil
	}
	reason := "ContainerCreating"
	if status.State.Waiting != nil && status.State.Waiting.Reason != "" {
		reason = status.State.Waiting.Reason
	}
	return run{}, newHTTPError(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", container, pod.Name, reason)
}

func endedRun(pod *corev1.Pod, number int32, state *corev1.ContainerStateTerminated) run {
	return run{uid: pod.UID, number: number, started: state.StartedAt.Time, ended: state.FinishedAt.Time, exitCode: state.ExitCode}
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	found, err := s.findContainer(r)
	var options logOptions
	if err == nil {
		options, err = parseLogOptions(r.URL.Query(), time.Now())
	}
	if err == nil {
		_, err = runOf(found.pod, found.container.Name, options.previous)
	}
	if err != nil {
		respondError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := func() { _ = http.NewResponseController(w).Flush() } // the client may be gone
	if err := s.follow(r.Context(), found, options, flushWriter{w, flush}); err != nil {
		s.log.Debug("Ended log", "pod", found.pod.Namespace+"/"+found.pod.Name, "error", err)
	}
}

// flushWriter sends each write at once.
type flushWriter struct {
	io.Writer
	flush func()
}

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	f.flush()
	return n, err
}

// errLimit ends a log after its limit of bytes.
var errLimit = errors.New("the log has reached its limit of bytes")

// follow writes the log of a container's run, and with options.follow also what it writes
// until it ends, its pod is gone, or ctx ends.
func (s *Server) follow(ctx context.Context, found target, options logOptions, out io.Writer) error {
	current, err := runOf(found.pod, found.container.Name, options.previous)
	if err != nil {
		return err
	}
	printer := &linePrinter{out: out, timestamps: options.timestamps, left: options.limit}
	all := output(found.pod, found.container, current, time.Now())
	lines, written := since(all, options.since), len(all)
	if options.tail >= 0 {
		lines = lines[max(0, int64(len(lines))-options.tail):]
	}
	if err := printer.print(lines); err != nil {
		return ignoreLimit(err)
	}
	ticker := time.NewTicker(s.pollInterval)
	defer ticker.Stop()
	for options.follow && current.ended.IsZero() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		next, exists := s.sameRun(found, current)
		if !exists {
			return nil
		}
		current = next
		lines := output(found.pod, found.container, current, time.Now())
		if err := printer.print(lines[min(written, len(lines)):]); err != nil {
			return ignoreLimit(err)
		}
		written = max(written, len(lines))
	}
	return nil
}

func ignoreLimit(err error) error {
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// sameRun returns the present state of a run that was running, and whether it is still known.
func (s *Server) sameRun(found target, before run) (run, bool) {
	pod := found.node.Pod(found.pod.Namespace, found.pod.Name)
	if pod == nil || pod.UID != before.uid {
		return run{}, false
	}
	for _, previous := range []bool{false, true} {
		if now, err := runOf(pod, found.container.Name, previous); err == nil && now.number == before.number {
			return now, true
		}
	}
	return run{}, false
}

// since returns the lines that are not older.
func since(lines []line, oldest time.Time) []line {
	for i := range lines {
		if !lines[i].at.Before(oldest) {
			return lines[i:]
		}
	}
	return nil
}

// linePrinter writes lines as the options say.
type linePrinter struct {
	out        io.Writer
	timestamps bool
	left       int64 // bytes that may follow; negative for any number
}

func (p *linePrinter) print(lines []line) error {
	for _, l := range lines {
		text := l.text + "\n"
		if p.timestamps {
			text = fmt.Sprintf("%s %s", l.at.UTC().Format("2006-01-02T15:04:05.000000000Z07:00"), text)
		}
		if p.left >= 0 && int64(len(text)) > p.left {
			text = text[:p.left]
		}
		if _, err := io.WriteString(p.out, text); err != nil {
			return err
		}
		if p.left >= 0 {
			if p.left -= int64(len(text)); p.left == 0 {
				return errLimit
			}
		}
	}
	return nil
}
