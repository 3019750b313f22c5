// Package newfile creates files so that a power cut leaves all or nothing of them: their
// content is written under another name, without a sync for each part, made durable by one
// sync, and then renamed.
package newfile
