// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/lab/up"
)

func TestTimeCommandsAdvancePolicyTime(t *testing.T) {
	dir := newEmbeddedDir(t, 0)
	at := func(args ...string) up.PolicyTime {
		t.Helper()
		output, err := runCommand(t, append([]string{"time"}, append(args, "--dir", dir, "-o", "json")...)...)
		if err != nil {
			t.Fatal(err)
		}
		var now up.PolicyTime
		if err := json.Unmarshal([]byte(output), &now); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return now
	}
	if now := at("show"); now.AheadSeconds != 0 || now.Scale != 1 {
		t.Errorf("initially it is %+v, want real time", now)
	}
	const ahead = 36 * 3600
	for _, args := range [][]string{{"advance", "1d12h"}, {"scale", "1.5"}, {"scale", "1"}} {
		now := at(args...)
		if now.AheadSeconds < ahead || now.AheadSeconds > ahead+60 {
			t.Errorf("after %v it is %d s ahead, want 36 h", args, now.AheadSeconds)
		}
	}
	if now := at("show"); now.Scale != 1 {
		t.Errorf("the scale is %v, want 1 again", now.Scale)
	}
	text, err := runCommand(t, "time", "show", "--dir", dir)
	if err != nil || !strings.Contains(text, ", 36h") || !strings.Contains(text, "Real time:  ") {
		t.Errorf("sluice time show prints %q: %v", text, err)
	}
}

func TestCommandsRejectInvalidArguments(t *testing.T) {
	dir := newEmbeddedDir(t, 0)
	for line, want := range map[string]string{
		"time advance 1x --dir " + dir:        "30m, 48h, 10d or 1d12h",
		"time advance P1D --dir " + dir:       "30m, 48h, 10d or 1d12h",
		"time advance 99999d --dir " + dir:    "at most 3660d",
		"time advance":                        "1 arg",
		"time advance 1h -o xml --dir " + dir: `want text, json, yaml`,
		"time scale 0 --dir " + dir:           "from 1 to 3600",
		"time scale NaN --dir " + dir:         "from 1 to 3600",
		"time scale 1e9 --dir " + dir:         "from 1 to 3600",
		"time scale fast --dir " + dir:        "from 1 to 3600",
		"time sideways":                       "sideways",
		"time show --dir " + dir + "/none":    "no embedded cluster",
		"time next --dir " + dir:              "no cluster is running",
		"up --time-scale 3601 --dir " + dir:   "from 1 to 3600",
		"up --time-scale 0 --dir " + dir:      "from 1 to 3600",
	} {
		output, err := runCommand(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sluice %s: err = %v, want it to contain %q\n%s", line, err, want, output)
		}
	}
	if file, err := up.OpenClock(dir); err != nil || len(file.Timeline().Segments) > 0 {
		t.Errorf("an invalid command changed policy time: %v", err)
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

// suspendedProject returns a project that is suspended at a time.
func suspendedProject(at time.Time) eventSources {
	return eventSources{projects: []v1alpha1.Project{{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Status:     v1alpha1.ProjectStatus{Next: &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectSuspended, At: metav1.NewTime(at)}},
	}}}
}

func TestTimeNextAdvancesToEvent(t *testing.T) {
	file, err := up.OpenClock(newEmbeddedDir(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(30*time.Hour + 30*time.Second).Truncate(time.Second)
	next := func(sources eventSources, dryRun bool) (nextEventsResult, string) {
		t.Helper()
		result, err := advanceToNextEvents(file, sources, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		var output bytes.Buffer
		if err := result.writeText(&output, dryRun); err != nil {
			t.Fatal(err)
		}
		return result, output.String()
	}
	_, text := next(suspendedProject(at), true)
	if got := up.PolicyTimeOf(file).AheadSeconds; got != 0 {
		t.Errorf("with --dry-run policy time advances by %d s", got)
	}
	if want := ": project thesis becomes Suspended\n"; !strings.HasPrefix(text, "In 30h, at ") || !strings.HasSuffix(text, want) {
		t.Errorf("it prints %q, want In 30h, at ...%s", text, want)
	}
	before := time.Now()
	result, text := next(suspendedProject(at), false)
	over := file.Now().Sub(at)
	if passed := time.Since(before); over < 0 || over > time.Second+passed {
		t.Errorf("policy time is %v after the event, want at most a second and the %v since then", over, passed)
	}
	if len(result.Events) != 1 || result.InSeconds < 29*3600 || !strings.Contains(text, "\nPolicy time: ") {
		t.Errorf("the result is %+v, the text %q", result, text)
	}
	if _, text := next(suspendedProject(at), false); !strings.HasPrefix(text, "No upcoming event") {
		t.Errorf("after the event it prints %q", text)
	}
	if none, _ := next(eventSources{}, false); !strings.Contains(jsonText(t, none), `"events": []`) {
		t.Errorf("without events the JSON is %s", jsonText(t, none))
	}
}

func TestTimeNextRejectsDistantEvent(t *testing.T) {
	file, err := up.OpenClock(newEmbeddedDir(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = advanceToNextEvents(file, suspendedProject(time.Now().AddDate(11, 0, 0)), false)
	if err == nil || !strings.Contains(err.Error(), "time advance") {
		t.Errorf("err = %v, want a hint", err)
	}
}
