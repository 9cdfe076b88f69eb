// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/up"
)

// newClusterDir is an embedded cluster's, of which nothing runs.
func newClusterDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mark := `{"apiVersion":"sim.sluice.dev/v1alpha1","kind":"EmbeddedCluster"}`
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte(mark), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// executeCommand types a command and returns what it prints.
func executeCommand(t *testing.T, words ...string) (string, error) {
	t.Helper()
	var output bytes.Buffer
	root := NewRootCommand()
	root.SetArgs(words)
	root.SetOut(&output)
	root.SetErr(&output)
	err := root.ExecuteContext(t.Context())
	return output.String(), err
}

func TestClockCommandAdvancesPolicyTime(t *testing.T) {
	dir := newClusterDir(t)
	at := func(words ...string) up.PolicyTime {
		t.Helper()
		output, err := executeCommand(t, append([]string{"clock", "--dir", dir, "-o", "json"}, words...)...)
		if err != nil {
			t.Fatal(err)
		}
		var now up.PolicyTime
		if err := json.Unmarshal([]byte(output), &now); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return now
	}
	if now := at(); now.AheadSeconds != 0 || now.Scale != 1 {
		t.Errorf("at first it is %+v, want real time", now)
	}
	const ahead = 36 * 3600
	for _, words := range [][]string{nil, {"scale", "1.5"}, {"scale", "1"}} {
		if words == nil {
			words = []string{"advance", "1d12h"}
		}
		now := at(words...)
		if now.AheadSeconds < ahead || now.AheadSeconds > ahead+60 {
			t.Errorf("after %v it is %d s ahead, want 36 h", words, now.AheadSeconds)
		}
	}
	if now := at(); now.Scale != 1 {
		t.Errorf("the scale is %v, want 1 again", now.Scale)
	}
	text, err := executeCommand(t, "clock", "--dir", dir)
	if err != nil || !strings.Contains(text, ", 36h") || !strings.Contains(text, "real time  ") {
		t.Errorf("it is shown as %q: %v", text, err)
	}
}

func TestCommandsRejectInvalidArguments(t *testing.T) {
	dir := newClusterDir(t)
	for typed, want := range map[string]string{
		"clock advance 1x --dir " + dir:        "30m, 48h, 10d or 1d12h",
		"clock advance P1D --dir " + dir:       "30m, 48h, 10d or 1d12h",
		"clock advance 99999d --dir " + dir:    "at most 3660d",
		"clock advance":                        "1 arg",
		"clock advance 1h -o xml --dir " + dir: `--output "xml": want text or json`,
		"clock scale 0 --dir " + dir:           "from 1 to 3600",
		"clock scale NaN --dir " + dir:         "from 1 to 3600",
		"clock scale 1e9 --dir " + dir:         "from 1 to 3600",
		"clock scale fast --dir " + dir:        "from 1 to 3600",
		"clock sideways --dir " + dir:          "sideways",
		"clock --dir " + dir + "/none":         "cannot be stepped",
		"clock next --dir " + dir:              "nothing runs here",
		"up --time-scale 3601 --dir " + dir:    "from 1 to 3600",
		"up --time-scale 0 --dir " + dir:       "from 1 to 3600",
		"clocks -A -n lab":                     "want one of -n, -A and --project",
		"clocks -A --project p":                "want one of -n, -A and --project",
		"clocks -o csv":                        "want table or json",
		"extensions -A -n lab":                 "want one of",
		"report --by month":                    "want project, user, type or pool",
		"report --month october":               "YYYY-MM",
		"report --month 2026-13":               "YYYY-MM",
		"report -o yaml":                       "want table or csv or json",
		"extend":                               "1 arg",
		"extend job/x --by soon --reason r":    "--by: duration",
		"approve":                              "1 arg",
	} {
		output, err := executeCommand(t, strings.Fields(typed)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sluice %s: err = %v, want it to say %q\n%s", typed, err, want, output)
		}
	}
	if file, err := up.OpenClock(dir); err != nil || len(file.Timeline().Segments) > 0 {
		t.Errorf("what is wrong has moved policy time: %v", err)
	}
}

func FuzzParseScale(f *testing.F) {
	for _, text := range []string{"1", "3600", "NaN", "-0", "1e3", "0x10", "Inf", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := parseScale(text)
		if err == nil && !(value >= 1 && value <= policytime.MaxScale) {
			t.Fatalf("%q is accepted as %v", text, value)
		}
	})
}

// clockWithDeadline is a project that is suspended after a while.
func clockWithDeadline(at time.Time) EventSources {
	return EventSources{Projects: []v1alpha1.Project{{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Status:     v1alpha1.ProjectStatus{Next: &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectSuspended, At: metav1.NewTime(at)}},
	}}}
}

func TestClockNextAdvancesToEvent(t *testing.T) {
	file, err := up.OpenClock(newClusterDir(t))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(30*time.Hour + 30*time.Second).Truncate(time.Second)
	var output bytes.Buffer
	if err := advanceToNextEvents(&output, file, clockWithDeadline(at), true, "text"); err != nil {
		t.Fatal(err)
	}
	if got := up.PolicyTimeOf(file).AheadSeconds; got != 0 {
		t.Errorf("with --dry-run it steps by %d s", got)
	}
	if want := ": project thesis becomes Suspended\n"; !strings.HasPrefix(output.String(), "in 30h, at ") || !strings.HasSuffix(output.String(), want) {
		t.Errorf("it says %q, want that in 30h%s", output.String(), want)
	}
	output.Reset()
	if err := advanceToNextEvents(&output, file, clockWithDeadline(at), false, "json"); err != nil {
		t.Fatal(err)
	}
	if over := file.Now().Sub(at); over < 0 || over > time.Second {
		t.Errorf("it steps to %v after the instant, want at most a second", over)
	}
	var said nextEventsResult
	if err := json.Unmarshal(output.Bytes(), &said); err != nil || len(said.Events) != 1 || said.InSeconds < 29*3600 {
		t.Errorf("it says %s: %v", &output, err)
	}
	output.Reset()
	if err := advanceToNextEvents(&output, file, clockWithDeadline(at), false, "text"); err != nil || !strings.HasPrefix(output.String(), "nothing is recorded to come") {
		t.Errorf("when it has come it says %q: %v", &output, err)
	}
	output.Reset()
	if err := advanceToNextEvents(&output, file, EventSources{}, false, "json"); err != nil || !strings.Contains(output.String(), `"next": []`) {
		t.Errorf("for a machine nothing is %s: %v", &output, err)
	}
}

func TestClockNextRejectsDistantEvent(t *testing.T) {
	file, err := up.OpenClock(newClusterDir(t))
	if err != nil {
		t.Fatal(err)
	}
	err = advanceToNextEvents(&bytes.Buffer{}, file, clockWithDeadline(time.Now().AddDate(11, 0, 0)), false, "text")
	if err == nil || !strings.Contains(err.Error(), "clock advance") {
		t.Errorf("err = %v, want what to do instead", err)
	}
}
