/** Lines of code that are highlighted and drawn at once: each group is drawn in a task of its own. */
export const GROUP_LINES = 100;
