// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"regexp"
	"slices"
	"strings"

	"sluice.dev/policies/workbench"
)

// ignoreComment is a comment that removes findings.
type ignoreComment struct {
	place workbench.Place
	// line is the line whose findings it removes.
	line  int
	codes []string
	// fault is why it removes none; empty if it may.
	fault string
	used  bool
}

// ignoreMarker finds an ignore comment in a line of Rego or YAML.
var ignoreMarker = regexp.MustCompile(`(?:^|\s)#\s*sluice:ignore(?:\s+(.*))?$`)

// isCode matches what a code looks like.
var isCode = regexp.MustCompile(`^SL[0-9]{3}$`)

// parseIgnores returns the ignore comments of a file. One on a line of its own is for the next line that is no comment.
func parseIgnores(file, text string) []ignoreComment {
	var all []ignoreComment
	number, waiting := 0, 0 // comments from the index waiting have no line yet
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		isComment := strings.HasPrefix(strings.TrimSpace(line), "#")
		if found := ignoreMarker.FindStringSubmatchIndex(line); found != nil {
			argument := ""
			if found[2] >= 0 {
				argument = line[found[2]:found[3]]
			}
			column := found[0] + strings.IndexByte(line[found[0]:], '#') + 1
			one := ignoreComment{line: number, place: workbench.Place{File: file, Line: number, Column: column}}
			one.codes, one.fault = parseIgnored(argument)
			all = append(all, one)
		}
		if isComment {
			continue
		}
		for i := waiting; i < len(all); i++ {
			all[i].line = number
		}
		waiting = len(all)
	}
	return all
}

// parseIgnored parses the codes, separated by commas, and the reason of an ignore comment.
func parseIgnored(argument string) (codes []string, fault string) {
	list, reason, _ := strings.Cut(strings.TrimSpace(argument), " ")
	codes = strings.Split(list, ",")
	for _, id := range codes {
		code, known := lookUpCode(id)
		switch {
		case !isCode.MatchString(id):
			return nil, "write # sluice:ignore SL104 and the reason; several codes are separated by commas"
		case !known:
			return nil, "there is no code " + id
		case code.Severity == Error:
			return nil, id + " is an error, which cannot be ignored"
		}
	}
	if strings.TrimSpace(reason) == "" {
		return nil, "the reason is missing: write # sluice:ignore " + list + " and why the finding does not matter"
	}
	return codes, ""
}

// applyIgnores removes the ignored findings, and reports comments that are invalid or remove nothing.
func (l *linter) applyIgnores() {
	for _, file := range l.folder.Files() {
		comments := parseIgnores(file, l.folder.Text(file))
		l.findings = slices.DeleteFunc(l.findings, func(f Finding) bool {
			ignored := false
			for i := range comments {
				c := &comments[i]
				if f.File == file && max(f.Line, 1) == c.line && slices.Contains(c.codes, f.Code) {
					c.used, ignored = true, true
				}
			}
			return ignored
		})
		for i := range comments {
			switch c := &comments[i]; {
			case c.fault != "":
				l.add(invalidIgnore, "", c.place, "%s", c.fault)
			case !c.used:
				l.add(unusedIgnore, "", c.place, "there is no finding %s on line %d: remove the comment", strings.Join(c.codes, ", "), c.line)
			}
		}
	}
}
