// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// openTerminal returns a pseudo terminal: the side of the user and that of the command.
func openTerminal(t *testing.T) (user, command *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	command, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { command.Close() })
	if err := unix.IoctlSetWinsize(int(command.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 6, Col: 30}); err != nil {
		t.Fatal(err)
	}
	return user, command
}

// The terminal has its modes again after each end of the live view.
func TestLiveViewRestoresTerminal(t *testing.T) {
	for name, tc := range map[string]struct {
		key    string
		text   func(context.Context) (string, error)
		cancel bool
	}{
		"q":              {key: "q"},
		"Ctrl-C":         {key: "\x03"},
		"a signal":       {cancel: true},
		"an early error": {text: func(context.Context) (string, error) { return "", errors.New("forbidden") }},
	} {
		t.Run(name, func(t *testing.T) {
			user, command := openTerminal(t)
			before, err := term.GetState(int(command.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			if terminalOf(command) != command {
				t.Fatal("a terminal is none")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var shown strings.Builder
			go func() { // a key is pressed once the table is there
				chunk, pressed := make([]byte, 4096), false
				for {
					n, err := user.Read(chunk)
					if err != nil {
						return
					}
					shown.Write(chunk[:n])
					if !pressed && strings.Contains(shown.String(), "NAME") {
						pressed = true
						if tc.cancel {
							cancel()
						}
						if _, err := user.WriteString(tc.key); err != nil {
							return
						}
					}
				}
			}()
			text := tc.text
			if text == nil {
				text = func(context.Context) (string, error) { return "NAME " + strings.Repeat("x", 200), nil }
			}
			if err := showLive(ctx, command, command, text); (err != nil) != (tc.text != nil) {
				t.Errorf("it ended with %v", err)
			}
			after, err := term.GetState(int(command.Fd()))
			if err != nil || *after != *before {
				t.Errorf("the modes of the terminal were %+v and are %+v: %v", before, after, err)
			}
		})
	}
}
