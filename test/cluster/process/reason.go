// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"io"
	"os"
	"regexp"
	"strings"
)

// mostReadForReason bounds what is searched of a log, in bytes; a start logs less.
const mostReadForReason = 4 << 20

// gravest are the lines by which programs say why they give up, the clearest
// first: a structured log's last word (zap's, klog's), Go's, and an error.
var gravest = []*regexp.Regexp{
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

// reason returns the first of the gravest lines that a log has from an offset on,
// without the stack in it; empty where no line looks like it. A stack that
// follows the reason would otherwise push it out of the log's tail.
func reason(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() < from {
		from = 0 // cut to nothing meanwhile
	}
	found := make([]string, len(gravest))
	reader := bufio.NewReader(io.NewSectionReader(file, from, mostReadForReason))
	for {
		line, err := reader.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		for i, looks := range gravest {
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
			return withoutStack(line)
		}
	}
	return ""
}

// withoutStack cuts a structured line's stack, which is its last field.
func withoutStack(line string) string {
	if before, _, found := strings.Cut(line, `,"stacktrace":"`); found {
		return before + "}"
	}
	return line
}
