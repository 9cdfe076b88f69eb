// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// class is a class of attacks.
type class string

const (
	bindings     class = "bindings and subresources"
	identity     class = "identity"
	labels       class = "labels and annotations"
	priority     class = "priority"
	queues       class = "objects of the scheduler"
	quotas       class = "quantities and quotas"
	podContents  class = "pod contents"
	owners       class = "ownership"
	extensions   class = "extensions"
	names        class = "names"
	policyTime   class = "time"
	hugeObjects  class = "huge objects"
	messages     class = "mail and terminal injection"
	tenancy      class = "projects and departments"
	deviceClaims class = "device claims"
	services     class = "services"
	cpuPods      class = "pods without GPUs"
	affinities   class = "affinity"
	volumeClaims class = "volume claims"
	nodeShares   class = "shares of a node"
	reservations class = "reserved GPUs"
	otherNames   class = "GPUs of other names"
	load         class = "the webhook's time"
)

// row is one attack. It holds for each role and engine.
type row struct {
	class class
	// name says what is attempted, such as "a Binding".
	name string
	// roles are those that attempt it; by default writers.
	roles []role
	// rbac are further roles, which RBAC alone refuses.
	rbac []role
	// engines are the schedulers of the project; by default kube-scheduler.
	engines []engine
	attack  attempt
	// want is part of the message that the attacker gets. {user} and the other words of
	// [attacker.expand] are replaced.
	want string
	// harmless checks, instead of want, that an accepted attack gained nothing. got is the object
	// that the API server returned.
	harmless func(a *attacker, got *unstructured.Unstructured) error
	// allowed marks a row that is no attack: its request must be accepted.
	allowed bool
	// control is the same without the bad part, which must be accepted: else the attack might be
	// refused for another reason. By default it is that of attack.
	control attempt
	// uncontrolled is the reason why there is no control.
	uncontrolled string
	// fresh runs the row in a project of its own.
	fresh bool
	// alone runs the row after all others and by itself, for example because it advances
	// policy time.
	alone bool
	// known is the reason why the attack still succeeds. The row fails as soon as it does not.
	known string
}

// attempt is a request of an attacker. It is a dry run unless really wraps it.
type attempt struct {
	// text says what is sent.
	text string
	run  func(a *attacker) (*unstructured.Unstructured, error)
	// control is the same request without its bad part; nil if there is none.
	control *attempt
	// foreign is the reason why there is no control, such as that the object is Sluice's.
	foreign string
}

// allRows has the rows of all files.
var allRows []row

// attacks adds a table to the rows. Each file calls it once.
func attacks(rows ...row) bool {
	allRows = append(allRows, rows...)
	return true
}

func (r row) attackers() []role {
	attackers := r.roles
	if len(attackers) == 0 {
		attackers = writers
	}
	return slices.Concat(attackers, r.rbac)
}

func (r row) schedulers() []engine {
	if len(r.engines) == 0 {
		return []engine{kube}
	}
	return r.engines
}

// attempts returns how often the row is attempted.
func (r row) attempts() int { return len(r.attackers()) * len(r.schedulers()) }

// byRBAC is in each refusal of RBAC, before the verb. It needs no control.
const byRBAC = "cannot "

// wants returns the expected message for a role; empty if the request is accepted.
func (r row) wants(of role) string {
	if slices.Contains(r.rbac, of) {
		return byRBAC
	}
	return r.want
}

// controlFor returns the control for a role; nil if there is none.
func (r row) controlFor(of role) *attempt {
	switch {
	case r.allowed || r.uncontrolled != "" || slices.Contains(r.rbac, of):
		return nil
	case r.control.run != nil:
		return &r.control
	default:
		return r.attack.control
	}
}

// problems returns what is missing in the row.
func (r row) problems() (problems []string) {
	add := func(missing bool, text string) {
		if missing {
			problems = append(problems, fmt.Sprintf("%s/%s: %s", r.class, r.name, text))
		}
	}
	results := 0
	for _, given := range []bool{r.want != "", r.harmless != nil, r.allowed} {
		if given {
			results++
		}
	}
	add(r.class == "" || r.name == "" || r.attack.run == nil, "class, name and attack are required")
	add(results != 1, "one of want, harmless and allowed is required")
	add(r.want != "" && len(strings.TrimSpace(r.want)) < 5, "want is too short to identify a message")
	add(r.want != "" && !strings.HasPrefix(r.want, byRBAC) && r.control.run == nil && r.attack.control == nil && r.uncontrolled == "" && r.attack.foreign == "",
		"a control is required, or in uncontrolled why there is none")
	for _, of := range r.rbac {
		add(slices.Contains(r.roles, of), fmt.Sprintf("%s is in roles and in rbac", of))
	}
	return problems
}
