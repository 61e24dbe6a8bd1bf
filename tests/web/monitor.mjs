// SPDX-License-Identifier: Apache-2.0
/* A monitor on made-up samples, for the tests of the dashboard. */
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { folder, PROGRAM } from './harness.mjs';

const SAMPLES = path.join(path.dirname(fileURLToPath(import.meta.url)), 'make_samples.py');

/** Samples of a kind that make_samples.py knows; the path. */
export function samples(kind) {
  const file = path.join(folder, kind + '.jsonl');
  if (!fs.existsSync(file)) { execFileSync('python3', [SAMPLES, kind, file]); }
  return file;
}

const running = new Set();
process.on('exit', () => { for (const child of running) { child.kill('SIGKILL'); } });

/**
 * Start it and wait until it serves. `settings` are lines of its file's [watch] section.
 * @returns {Promise<{url: string, port: string, stop: () => Promise<void>}>}
 */
export async function monitor(kind, { port = '0', settings = '', more = '', words = [], db = 'none' } = {}) {
  const file = path.join(folder, 'watch-' + Math.random().toString(36).slice(2) + '.conf');
  fs.writeFileSync(file, '[watch]\ninterval = 250ms\ndefault-alerts = no\ndiscover-engines = no\n' + settings + '\n' + more);
  const child = spawn(PROGRAM, ['watch', '--samples', samples(kind), '--listen', '127.0.0.1:' + port, '--db', db, '--settings', file, ...words],
    { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, PLIMSOLL_CONFIG: '' } });
  running.add(child);
  const url = await new Promise((done, fail) => {
    let said = '';
    child.stderr.on('data', (data) => {
      said += data;
      const found = /serving at (http:\S+)/.exec(said);
      if (found) { done(found[1]); }
    });
    child.on('exit', () => fail(new Error('the monitor ended: ' + said)));
  });
  const stop = () => new Promise((done) => { running.delete(child); child.removeAllListeners('exit'); child.on('exit', () => done()); child.kill('SIGTERM'); });
  return { url, port: /:(\d+)\//.exec(url)[1], stop };
}
