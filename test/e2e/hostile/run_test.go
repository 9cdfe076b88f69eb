// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
)

// Every row says what the attacker sends and gets, and has a control.
func TestRowsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range allRows {
		for _, problem := range r.problems() {
			t.Error(problem)
		}
		if key := string(r.class) + "/" + r.name; seen[key] {
			t.Errorf("%s: there are two rows of this name", key)
		} else {
			seen[key] = true
		}
	}
}

// All attacks are held, by each role and against each scheduler. Guards invariants 3, 4, 10, 11 and
// 12 of the design.
func TestAttacks(t *testing.T) { runRows(t, false) }

// TestAttacksAlone runs the rows that nothing else may run beside.
func TestAttacksAlone(t *testing.T) { runRows(t, true) }

func runRows(t *testing.T, alone bool) {
	w := start(t)
	for _, r := range allRows {
		if r.alone != alone {
			continue
		}
		t.Run(string(r.class)+"/"+r.name, func(t *testing.T) {
			for _, e := range r.schedulers() {
				for _, as := range r.attackers() {
					t.Run(string(e)+"/"+string(as), func(t *testing.T) {
						if !alone {
							t.Parallel()
						}
						namespace := projectOf(e)
						if r.fresh {
							namespace = w.freshProject(t, e)
						}
						w.attacker(t, as, e, namespace).attempt(r)
					})
				}
			}
		})
	}
}

// freshProject creates a project for one test. Its namespace is deleted with it.
func (w *world) freshProject(t *testing.T, e engine, changes ...func(*v1alpha1.Project)) string {
	t.Helper()
	name := "hostile-" + shortHash(t.Name())
	if err := w.createProject(t.Context(), name, faculty, e, changes...); err != nil {
		t.Fatal(err)
	}
	return name
}

// attempt sends the control and the attack, and checks what comes back.
func (a *attacker) attempt(r row) {
	a.t.Helper()
	if control := r.controlFor(a.role); control != nil {
		if err := a.checkControl(*control); err != nil {
			a.t.Fatalf("%s\nas %s, on %s, is refused itself, so that the attack shows nothing: %v", control.text, a.role, a.engine, err)
		}
	}
	got, err := r.attack.run(a)
	if errors.Is(err, errFixture) {
		a.t.Fatal(err)
	}
	problem := a.evaluate(r, got, err)
	switch {
	case r.known != "" && problem == "":
		a.t.Errorf("%s\nas %s, on %s, is held now: remove known from the row", r.attack.text, a.role, a.engine)
	case r.known != "":
		a.t.Logf("known: %s: %s", r.known, problem)
	case problem != "":
		a.t.Errorf("%s\nas %s, on %s: %s", r.attack.text, a.role, a.engine, problem)
	}
}

// evaluate returns what is wrong with the result of an attack; empty if it is held.
func (a *attacker) evaluate(r row, got *unstructured.Unstructured, err error) string {
	want := a.expand(r.wants(a.role))
	switch {
	case want != "" && err == nil:
		return fmt.Sprintf("accepted; want a refusal with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		return fmt.Sprintf("refused with %.2000q; want %q", err.Error(), want)
	case want == "" && err != nil:
		return fmt.Sprintf("refused with %.2000q", err.Error())
	case want == "" && r.harmless != nil:
		if gained := r.harmless(a, got); gained != nil {
			return gained.Error()
		}
	}
	return ""
}

// checkControl sends the control of a row, once for each role and project.
func (a *attacker) checkControl(control attempt) error {
	key := strings.Join([]string{a.namespace, string(a.role), control.text}, "\n")
	check, _ := a.world.controls.LoadOrStore(key, sync.OnceValue(func() error {
		_, err := control.run(a)
		return err
	}))
	return check.(func() error)()
}
