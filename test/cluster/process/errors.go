// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"strings"
)

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
	return &StartError{Name: c.spec.Name, Err: err, Reason: reason(c.logPath, from), LogPath: c.logPath, Tail: tail}
}

// asError keeps a nil *StartError from becoming an error that is not nil.
func asError(err *StartError) error {
	if err == nil {
		return nil
	}
	return err
}
