// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"

	"sluice.dev/cmd/sluice/printer"
)

// liveInterval is the time between two refreshes of a live view.
const liveInterval = 2 * time.Second

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	keyCtrlC    = 3
)

// terminalOf returns the terminal to which a command prints, or nil.
func terminalOf(output io.Writer) *os.File {
	if plain, ok := output.(struct{ io.Writer }); ok { // --no-color
		output = plain.Writer
	}
	if file, ok := output.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// showLive shows a text in a terminal and refreshes it until the user ends it or ctx ends. It restores the
// terminal in any case. An error of the first text is returned; later ones are shown with the last text.
func showLive(ctx context.Context, terminal *os.File, input io.Reader, text func(context.Context) (string, error)) error {
	first, err := text(ctx)
	if err != nil {
		return err
	}
	if keyboard, ok := input.(*os.File); ok && term.IsTerminal(int(keyboard.Fd())) {
		state, err := term.MakeRaw(int(keyboard.Fd()))
		if err != nil {
			return fmt.Errorf("read keys from the terminal: %w", err)
		}
		defer term.Restore(int(keyboard.Fd()), state) //nolint:errcheck // the terminal is gone
	}
	view := liveView{output: terminal, input: input, interval: liveInterval, text: text, size: func() (int, int) {
		width, height, err := term.GetSize(int(terminal.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}}
	return view.run(ctx, first)
}

// liveView is a text on a terminal that is refreshed.
type liveView struct {
	output   io.Writer
	input    io.Reader
	interval time.Duration
	size     func() (width, height int)
	text     func(context.Context) (string, error)
}

// run shows the text until the user presses q or Ctrl-C, or ctx ends.
func (v *liveView) run(ctx context.Context, text string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	go endOnKey(v.input, end)
	if _, err := io.WriteString(v.output, enterScreen); err != nil {
		return err
	}
	defer io.WriteString(v.output, leaveScreen) //nolint:errcheck // the terminal is gone
	tick := time.NewTicker(v.interval)
	defer tick.Stop()
	status := ""
	for {
		width, height := v.size()
		if _, err := io.WriteString(v.output, renderFrame(text, status, width, height)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		next, err := v.text(ctx)
		switch {
		case err == nil:
			text, status = next, ""
		case errors.Is(err, context.Canceled):
			return nil
		default:
			status = "The last refresh failed: " + printer.Sanitize(err.Error())
		}
	}
}

// endOnKey calls end when the user presses q or Ctrl-C. A terminal in raw mode sends no signal for Ctrl-C.
func endOnKey(input io.Reader, end func()) {
	key := make([]byte, 1)
	for {
		n, err := input.Read(key)
		if err != nil {
			return
		}
		if n == 1 && (key[0] == 'q' || key[0] == 'Q' || key[0] == keyCtrlC) {
			end()
			return
		}
	}
}

// renderFrame returns the output that draws a text over the last one. Lines that do not fit are cut, and the
// last line has the status or how to quit.
func renderFrame(text, status string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	width, height = max(width, 1), max(height, 1)
	if status == "" {
		status = "q: quit"
	}
	if room := height - 1; len(lines) > room {
		hidden := len(lines) - max(room-1, 0)
		lines = append(lines[:max(room-1, 0)], fmt.Sprintf("and %d more lines", hidden))
		lines = lines[:min(len(lines), room)]
	}
	var frame strings.Builder
	frame.WriteString(homeCursor)
	for _, line := range lines {
		frame.WriteString(cutLine(line, width) + clearLine + "\r\n")
	}
	frame.WriteString(cutLine(status, width) + clearLine + clearBelow)
	return frame.String()
}

func cutLine(line string, width int) string {
	return lipgloss.NewStyle().Inline(true).MaxWidth(width).Render(strings.TrimRight(line, " "))
}
