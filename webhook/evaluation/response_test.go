// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
)

// Where only the time was too short, the answer is 429. client-go then repeats the request for people, but neither for controllers nor for
// the project that causes the load. Guards invariant 10 of the design.
func TestErrorResponse(t *testing.T) {
	slots := NewSlots(2)
	for project, requests := range map[string]int{"greedy": 5, "modest": 1} {
		for range requests {
			if _, err := slots.request(project); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		user, project string
		slots         *Slots
		err           error
		code          int32
		retried       bool
	}{
		"a person":                          {"anna", "modest", slots, engine.ErrBusy, 429, true},
		"a controller":                      {"system:serviceaccount:kube-system:job-controller", "modest", slots, engine.ErrBusy, 429, false},
		"a person of the project at fault":  {"eve", "greedy", slots, errTooManyRequests, 429, false},
		"a person while nobody is at fault": {"anna", "modest", NewSlots(2), engine.ErrRequestDeadline, 429, true},
		"a person without slots":            {"anna", "modest", nil, errNoSlot, 429, true},
		"policies that are not loaded":      {"anna", "modest", slots, engine.ErrNotLoaded, 503, false},
		"another error":                     {"anna", "modest", slots, errors.New("broken"), 500, false},
	} {
		e := &Evaluator{Slots: tc.slots}
		response := e.ErrorResponse(authenticationv1.UserInfo{Username: tc.user}, &decision.Tenant{Project: tc.project}, fmt.Errorf("wait: %w", tc.err))
		details := response.Result.Details
		if response.Allowed || response.Result.Code != tc.code || tc.retried != (details != nil && details.RetryAfterSeconds > 0) {
			t.Errorf("%s: %+v", name, response.Result)
		}
		if tc.code == 429 && !strings.HasPrefix(response.Result.Message, "busy, try again: ") {
			t.Errorf("%s: %s", name, response.Result.Message)
		}
	}
}

// A project causes the load if it has as many requests in flight as there are slots, and no other has more.
func TestLoadHasACause(t *testing.T) {
	for name, tc := range map[string]struct {
		requests map[string]int
		crowds   bool // a
	}{
		"one request":            {map[string]int{"a": 1}, false},
		"fewer than slots":       {map[string]int{"a": 3}, false},
		"all slots":              {map[string]int{"a": 4}, true},
		"more than others":       {map[string]int{"a": 20, "b": 19}, true},
		"fewer than another":     {map[string]int{"a": 20, "b": 21}, false},
		"as many as another":     {map[string]int{"a": 9, "b": 9}, true},
		"none, and others crowd": {map[string]int{"b": 64}, false},
	} {
		slots := NewSlots(4)
		for project, requests := range tc.requests {
			for range requests {
				if _, err := slots.request(project); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := slots.isCrowdedBy("a"); got != tc.crowds {
			t.Errorf("%s: %t, want %t", name, got, tc.crowds)
		}
	}
}
