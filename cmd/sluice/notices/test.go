// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// testLook is how often it is looked how far a test has come, in machine time.
const testLook = 500 * time.Millisecond

// ErrNotSent is that a test mail was not sent, for the reason in the [Tested].
var ErrNotSent = errors.New("the test mail was not sent")

// Test is a mail by which an administrator tries whether mail arrives.
type Test struct {
	// Address is who gets it, and Language in which language.
	Address  string
	Language v1alpha1.Language
	// Now is when it is asked for, in policy time.
	Now time.Time
	// Timeout is how long it is waited for, in machine time.
	Timeout time.Duration
	// Progress is told each step that is new, in a line.
	Progress func(string)
}

// Tested is what became of a test mail.
type Tested struct {
	Row
	// Problem is why it is not sent, and what to do; empty where it is.
	Problem string `json:"problem,omitempty"`
	// Mail is whether mail is sent at all; left out where that cannot be read.
	Mail *State `json:"mail,omitempty"`
}

// Run makes the Notice and waits until it is sent, or cannot be. The error is
// [ErrNotSent] where the Notice is there; a Tested then says why. An address that is
// none is refused before anything is written.
func (t Test) Run(ctx context.Context, c client.Client) (*Tested, error) {
	if err := CheckAddress(t.Address); err != nil {
		return nil, err
	}
	n := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + rand.String(10)},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{
				Contact:  v1alpha1.Contact{Name: "Test", Email: v1alpha1.EmailAddress(t.Address)},
				Language: t.Language, TimeZone: "UTC",
			},
			Kind: v1alpha1.NoticeTest, DueAt: metav1.NewTime(t.Now.Truncate(time.Second)),
		},
	}
	if err := c.Create(ctx, n, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
		return nil, fmt.Errorf("asking for a test mail: %w%s", err, whoMay(err, "create notices"))
	}
	t.Progress(fmt.Sprintf("notice %s is recorded; waiting for lifecycle, at most %s", n.Name, t.Timeout))
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	w := watching{test: t, client: c, notice: n}
	tested, err := w.wait(ctx)
	if err == nil && tested.Problem != "" {
		err = ErrNotSent
	}
	return tested, err
}

// watching is a test mail that is waited for.
type watching struct {
	test   Test
	client client.Client
	notice *v1alpha1.Notice
	// said is the step that was told last, and looks how often it was looked.
	said  string
	looks int
}

// wait looks until there is nothing to wait for.
func (w *watching) wait(ctx context.Context) (*Tested, error) {
	tick := time.NewTicker(testLook)
	defer tick.Stop()
	for {
		w.looks++
		n := &v1alpha1.Notice{}
		err := w.client.Get(ctx, client.ObjectKeyFromObject(w.notice), n)
		switch {
		case apierrors.IsNotFound(err):
			return w.tested("somebody took the notice away while it waited; ask again"), nil
		case err != nil && ctx.Err() == nil:
			return nil, fmt.Errorf("reading notice %s: %w%s", w.notice.Name, err, whoMay(err, "get and list notices"))
		case err == nil:
			w.notice = n
			if problem, over := w.judge(ctx); over {
				return w.tested(problem), nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.late(context.WithoutCancel(ctx), ctx.Err()), nil
		}
	}
}

func (w *watching) say(step string) {
	if step != w.said {
		w.said = step
		w.test.Progress(step)
	}
}

// tested is how it ended.
func (w *watching) tested(problem string) *Tested {
	result := &Tested{Row: RowOf(w.notice), Problem: problem}
	if state, err := ReadState(context.Background(), w.client); err == nil {
		result.Mail = &state
	}
	return result
}
