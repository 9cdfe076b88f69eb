// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rewriter replaces what a pod has to itself by what it has on this machine: mount paths by
// folders, and addresses to listen on by addresses on loopback.
type rewriter struct {
	folders map[string]string // by mount path
	ports   map[string]string // by containerPort
	paths   *regexp.Regexp
	listens *regexp.Regexp
}

// newRewriter returns the rewriter for folders by mount path, and loopback ports by
// containerPort.
func newRewriter(folders map[string]string, ports map[int32]int) *rewriter {
	r := &rewriter{folders: folders, ports: map[string]string{}}
	var paths, numbers []string
	for path := range folders {
		paths = append(paths, regexp.QuoteMeta(path))
	}
	// The expression prefers the first alternative, which has to be the innermost mount.
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	if len(paths) > 0 {
		r.paths = regexp.MustCompile(strings.Join(paths, "|"))
	}
	for from, to := range ports {
		number := strconv.Itoa(int(from))
		r.ports[number] = strconv.Itoa(to)
		numbers = append(numbers, number)
	}
	slices.SortFunc(numbers, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	if len(numbers) > 0 {
		r.listens = regexp.MustCompile(`(?:0\.0\.0\.0|\[::\]|127\.0\.0\.1|localhost)?:(?:` + strings.Join(numbers, "|") + `)`)
	}
	return r
}

// rewrite returns the text with both replacements.
func (r *rewriter) rewrite(text string) string {
	if r.listens != nil {
		text = replaceWords(r.listens, text, func(match string) string {
			return "127.0.0.1:" + r.ports[match[strings.LastIndexByte(match, ':')+1:]]
		})
	}
	if r.paths != nil {
		text = replaceWords(r.paths, text, func(match string) string { return r.folders[match] })
	}
	return text
}

// replaceWords replaces the matches that are not a part of a longer path or address. A
// folder may follow a path.
func replaceWords(pattern *regexp.Regexp, text string, replacement func(string) string) string {
	var out strings.Builder
	done := 0
	for _, at := range pattern.FindAllStringIndex(text, -1) {
		begin, end := at[0], at[1]
		if begin > 0 && (isWord(text[begin-1]) || strings.IndexByte("/]", text[begin-1]) >= 0) || end < len(text) && isWord(text[end]) {
			continue
		}
		out.WriteString(text[done:begin])
		out.WriteString(replacement(text[begin:end]))
		done = end
	}
	out.WriteString(text[done:])
	return out.String()
}

// isWord reports whether a byte continues a name in a path, or a port.
func isWord(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("._-", b) >= 0
}
