// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"net/mail"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestValidateAddress(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]address{
		"ada@example.org":              {path: "ada@example.org"},
		"a.b+c_d/e=f@x-1.org":          {path: "a.b+c_d/e=f@x-1.org"},
		"o'brien@host":                 {path: "o'brien@host"},
		"ada@bücher.example":           {path: "ada@xn--bcher-kva.example"},
		"jürgen@example.org":           {path: "jürgen@example.org", utf8: true},
		"用户@例子.测试":                     {path: "用户@xn--fsqu00a.xn--0zwm56d", utf8: true},
		strings.Repeat("a", 64) + "@x": {path: strings.Repeat("a", 64) + "@x"},
	} {
		got, err := parseAddress(given)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(address{})); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", given, err, diff)
		}
	}
	for _, given := range []string{
		"", "@", "ada", "ada@", "@x.org", "a b@x.org", "a@x.org b", "a@x.org>", "<a@x.org>", "a@x.org\r\nDATA", "a\n@x.org",
		"a\x00@x.org", "a\t@x.org", "a@b@x.org", `"a b"@x.org`, `"a"@x.org`, "a@[127.0.0.1]", "a@x..org", "a@-x.org", "a@x.org.",
		".a@x.org", "a.@x.org", "a..b@x.org", "a,b@x.org", "a;b@x.org", "a@x_y.org", "@r.org:a@x.org", "a(c)@x.org", "a\\@x.org",
		"a\u00a0b@x.org", "a\u202eb@x.org", "a\u200bb@x.org", "a\u2028b@x.org", "\xff@x.org", "a@\u3002", "a@x\u202e.org",
		strings.Repeat("a", 65) + "@x.org", "a@" + strings.Repeat("a", 64) + ".org",
		"a@" + strings.Repeat("abcdefghi.", 26) + "org",
		"a@" + strings.Repeat("bücher.", 20) + "org", // too long only in ASCII
	} {
		if got, err := parseAddress(given); err == nil {
			t.Errorf("%q passes as %q", given, got.path)
		}
	}
}

// FuzzValidateAddress searches for an address that escapes the angle brackets.
func FuzzValidateAddress(f *testing.F) {
	for _, seed := range []string{
		"ada@example.org", "v@x> NOTIFY=NEVER", "jürgen@bücher.example", "a\r\n@b", `"a>"@b`, "a@b\u3002c", "＜a@b＞",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		got, err := parseAddress(given)
		if err != nil {
			if got != (address{}) {
				t.Errorf("%q is refused and given as %q", given, got.path)
			}
			return
		}
		if len(got.path) > maxAddressLength || strings.Count(got.path, "@") != 1 {
			t.Errorf("%q passes as %q", given, got.path)
		}
		for _, r := range got.path {
			if r <= ' ' || strings.ContainsRune("<>()[]\\,;:\"\x7f", r) || unicode.IsSpace(r) || unicode.IsControl(r) ||
				r == unicode.ReplacementChar && !strings.ContainsRune(given, r) {
				t.Errorf("%q passes with %q", given, r)
			}
		}
		if _, domain, _ := strings.Cut(got.path, "@"); !isASCII(domain) {
			t.Errorf("%q passes with the domain %q", given, domain)
		}
		if parsed, err := mail.ParseAddress("<" + got.path + ">"); err != nil || parsed.Address != got.path {
			t.Errorf("%q passes as %q, which is read as %v, %v", given, got.path, parsed, err)
		}
		if again, err := parseAddress(got.path); err != nil || again != got {
			t.Errorf("%q passes as %q, and that as %q, %v", given, got.path, again.path, err)
		}
	})
}
