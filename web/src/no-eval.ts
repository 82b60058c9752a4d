import { config } from "zod/v4/core";

/**
 * Keep zod from compiling its schemas: the policy of the page forbids `eval`, and zod's probe of it would be reported as a
 * violation at every load. This is the first import of the page, because the AI SDK makes its schemas when it is imported.
 */
config({ jitless: true });
