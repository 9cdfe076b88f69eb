// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Recorder writes Notices.
type Recorder struct {
	// Client writes to the API server.
	Client client.Client
	// Live reads from it, where a Notice is there already.
	Live client.Reader
}

// Record records an announcement for each recipient. It may be called again with
// the same: what is there already stays as it is. It returns how many were new.
func (r *Recorder) Record(ctx context.Context, a Announcement, recipients []v1alpha1.NoticeRecipient) (recorded int, err error) {
	for _, to := range recipients {
		notice := a.notice(to)
		err := r.Client.Create(ctx, notice)
		switch {
		case err == nil:
			recorded++
		case !apierrors.IsAlreadyExists(err):
			return recorded, fmt.Errorf("recording notice %s: %w", notice.Name, err)
		case !a.Superseded:
			continue
		default:
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(notice), notice); err != nil {
				return recorded, fmt.Errorf("reading notice %s: %w", notice.Name, err)
			}
		}
		if a.Superseded && notice.Status.Phase == "" {
			notice.Status.Phase = v1alpha1.NoticeSuperseded
			if err := r.Client.Status().Update(ctx, notice); err != nil {
				return recorded, fmt.Errorf("setting notice %s aside: %w", notice.Name, err)
			}
		}
	}
	return recorded, nil
}
